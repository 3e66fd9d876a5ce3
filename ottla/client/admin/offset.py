"""The admin calls for partition offsets and for deleting records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ottla.client.admin.call import Calls, by_topic
from ottla.client.admin.result import ListedOffset, OffsetSpec, Results
from ottla.client.connection.clock import now_ms
from ottla.client.connection.connection import BrokerConnection
from ottla.kernel.client_error import error_of
from ottla.kernel.error import KafkaError
from ottla.kernel.ids import TopicPartition
from ottla.wire.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

R = TypeVar("R")
V = TypeVar("V")


class OffsetCalls(Calls):
    """The part of `AsyncAdmin` for offsets and records."""

    async def list_offsets(
        self, specs: Mapping[TopicPartition, OffsetSpec | int], *, read_committed: bool = False
    ) -> Results[TopicPartition, ListedOffset]:
        """Look up an offset of each partition: by `OffsetSpec`, or the first at or after a timestamp (ms since 1970).

        With `read_committed`, LATEST is the last stable offset. For a timestamp after the last record, offset and
        timestamp are -1.
        """

        def request(partitions_of_leader: list[TopicPartition]) -> ListOffsetsRequest:
            return ListOffsetsRequest(
                replica_id=-1,
                isolation_level=int(read_committed),
                topics=[
                    ListOffsetsTopic(
                        name=topic,
                        partitions=[
                            ListOffsetsPartition(
                                partition_index=number, timestamp=int(specs[TopicPartition(topic, number)])
                            )
                            for number in numbers
                        ],
                    )
                    for topic, numbers in by_topic(partitions_of_leader).items()
                ],
                timeout_ms=self._settings.request_timeout_ms,
            )

        def read(response: ListOffsetsResponse) -> dict[TopicPartition, ListedOffset | KafkaError]:
            return {
                TopicPartition(topic.name, result.partition_index): error_of(result.error_code)
                or ListedOffset(
                    result.offset, result.timestamp, result.leader_epoch if result.leader_epoch >= 0 else None
                )
                for topic in response.topics
                for result in topic.partitions
            }

        return await self._on_leaders(specs, request, ListOffsetsResponse, read)

    async def list_offset(self, partition: TopicPartition, spec: OffsetSpec | int) -> ListedOffset:
        """Look up one partition's offset; see `list_offsets`."""
        return (await self.list_offsets({partition: spec}))[partition]

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> Results[TopicPartition, int]:
        """Delete the records before these offsets (-1: up to the high watermark). Returns the new log start offsets."""

        def request(partitions_of_leader: list[TopicPartition]) -> DeleteRecordsRequest:
            return DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name=topic,
                        partitions=[
                            DeleteRecordsPartition(partition_index=number, offset=before[TopicPartition(topic, number)])
                            for number in numbers
                        ],
                    )
                    for topic, numbers in by_topic(partitions_of_leader).items()
                ],
                timeout_ms=self._settings.request_timeout_ms,
            )

        def read(response: DeleteRecordsResponse) -> dict[TopicPartition, int | KafkaError]:
            outcomes: dict[TopicPartition, int | KafkaError] = {}
            for topic in response.topics:
                for result in topic.partitions:
                    error = error_of(result.error_code)
                    outcomes[TopicPartition(topic.name, result.partition_index)] = (
                        result.low_watermark if error is None else error
                    )
            return outcomes

        return await self._on_leaders(before, request, DeleteRecordsResponse, read)

    async def _on_leaders(
        self,
        partitions: Iterable[TopicPartition],
        request: Callable[[list[TopicPartition]], object],
        response: type[R],
        read: Callable[[R], dict[TopicPartition, V | KafkaError]],
    ) -> Results[TopicPartition, V]:
        async def ask(connection: BrokerConnection, led: list[TopicPartition]) -> dict[TopicPartition, V | KafkaError]:
            return read(await self._on(connection, request(led), response))

        async def attempt(left: list[TopicPartition]) -> dict[TopicPartition, V | KafkaError]:
            led, errors = await self._leaders(left)
            outcomes = {**errors, **await self._on_nodes(led, ask)}
            if any(isinstance(outcome, KafkaError) and outcome.code.retriable for outcome in outcomes.values()):
                self._cluster.metadata.request_update(now_ms())
                await self._cluster.update()
            return outcomes

        return await self._with_retries(partitions, attempt)
