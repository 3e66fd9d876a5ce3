"""The admin calls that find, describe, abort and fence the transactions of producers (KIP-588, KIP-664)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from ottla.client.admin.replica import ReplicaCalls
from ottla.client.admin.result import Results
from ottla.client.connection.cluster import TRANSACTION
from ottla.client.connection.connection import BrokerConnection
from ottla.client.connection.metadata import ClusterNode
from ottla.kernel.client_error import check, error_of, only
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.frozen import frozen
from ottla.kernel.ids import TopicPartition
from ottla.wire.api.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.api.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.wire.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

T = TypeVar("T")


@frozen
class TransactionListing:
    """An entry of `list_transactions`. `state` is Kafka's name: Empty, Ongoing, PrepareCommit, CompleteAbort, ..."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: ClusterNode


@frozen
class TransactionDescription:
    """A transactional id, from its coordinator's view. `start_timestamp` (ms since 1970) is None if none is open."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_timestamp: int | None
    partitions: tuple[TopicPartition, ...]
    coordinator: ClusterNode


@frozen
class ProducerEpoch:
    """A producer id and its epoch."""

    producer_id: int
    producer_epoch: int


class TransactionAdminCalls(ReplicaCalls):
    """The part of `AsyncAdmin` for transactions."""

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        duration_ms: int = -1,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids of the cluster, sorted.

        The arguments select those in these states, of these producers, with a transaction open for longer than
        `duration_ms`, or with a name that matches the regular expression `pattern`.
        """
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=duration_ms,
            transactional_id_pattern=pattern,
        )
        await self._cluster.update()
        listings = []
        for node in list(self._cluster.metadata.nodes.values()):
            response = await self._node(
                node.id, request, ListTransactionsResponse, lambda answer: check(answer.error_code)
            )
            for name in response.unknown_state_filters:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no transaction state {name}")
            listings += [
                TransactionListing(
                    transaction.transactional_id, transaction.producer_id, transaction.transaction_state, node
                )
                for transaction in response.transaction_states
            ]
        return sorted(listings, key=lambda transaction: transaction.transactional_id)

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> Results[str, TransactionDescription]:
        """Describe transactional ids: state, producer, partitions. TRANSACTIONAL_ID_NOT_FOUND for an unknown one."""

        async def describe(connection: BrokerConnection, name: str) -> TransactionDescription:
            request = DescribeTransactionsRequest(transactional_ids=[name])
            response = await self._on(connection, request, DescribeTransactionsResponse)
            transaction = only(response.transaction_states, f"transactional id {name}")
            check(transaction.error_code, f"transactional id {name}")
            node_id = self._cluster.coordinator_id(TRANSACTION, name)
            return TransactionDescription(
                name,
                transaction.transaction_state,
                transaction.producer_id,
                transaction.producer_epoch,
                transaction.transaction_timeout_ms,
                transaction.transaction_start_time_ms if transaction.transaction_start_time_ms >= 0 else None,
                tuple(
                    TopicPartition(topic.topic, number) for topic in transaction.topics for number in topic.partitions
                ),
                self._node_or_unknown(-1 if node_id is None else node_id),
            )

        return await self._on_coordinators(transactional_ids, describe)

    async def fence_producers(self, transactional_ids: Iterable[str]) -> Results[str, ProducerEpoch]:
        """Fence the current producers with these transactional ids, and abort their open transactions."""

        async def fence(connection: BrokerConnection, name: str) -> ProducerEpoch:
            # The request must have a timeout, although no transaction follows.
            request = InitProducerIdRequest(
                transactional_id=name, transaction_timeout_ms=self._settings.request_timeout_ms
            )
            response = await self._on(
                connection,
                request,
                InitProducerIdResponse,
                lambda answer: check(answer.error_code, f"fencing transactional id {name}"),
            )
            return ProducerEpoch(response.producer_id, response.producer_epoch)

        return await self._on_coordinators(transactional_ids, fence)

    async def terminate_transaction(self, transactional_id: str) -> None:
        """Abort the open transaction of this transactional id by fencing its producer (KIP-939)."""
        (await self.fence_producers([transactional_id])).check()

    async def abort_transaction(self, partition: TopicPartition, start_offset: int) -> None:
        """Abort a hanging transaction: one that is open in this partition but unknown to its coordinator.

        `describe_producers` returns its `start_offset`. KafkaError INVALID_REQUEST if no transaction starts there.
        """
        described = (await self.describe_producers([partition]))[partition]
        owner = next((producer for producer in described if producer.transaction_start_offset == start_offset), None)
        if owner is None:
            why = f"{partition} has no open transaction that starts at offset {start_offset}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, why)
        epoch = 0 if owner.coordinator_epoch is None else owner.coordinator_epoch

        def request(partitions: list[TopicPartition]) -> WriteTxnMarkersRequest:
            marker = WritableTxnMarker(
                producer_id=owner.producer_id,
                producer_epoch=owner.producer_epoch,
                transaction_result=False,
                topics=[
                    WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])
                    for partition in partitions
                ],
                coordinator_epoch=epoch,
            )
            return WriteTxnMarkersRequest(markers=[marker])

        def read(response: WriteTxnMarkersResponse) -> dict[TopicPartition, KafkaError | None]:
            return {
                TopicPartition(topic.name, result.partition_index): error_of(result.error_code)
                for marker in response.markers
                for topic in marker.topics
                for result in topic.partitions
            }

        (await self._on_leaders([partition], request, WriteTxnMarkersResponse, read)).check()

    async def _on_coordinators(
        self, names: Iterable[str], ask: Callable[[BrokerConnection, str], Awaitable[T]]
    ) -> Results[str, T]:
        async def ask_one(name: str) -> T:
            async def attempt(connection: BrokerConnection) -> T:
                return await ask(connection, name)

            return await self._coordinator(name, attempt, TRANSACTION)

        return await self._each(names, ask_one)
