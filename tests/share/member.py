"""A member of a share group that sends what a test says, over a real socket; it works against any server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from time import monotonic, time_ns
from typing import Any, NamedTuple

from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import NO_UUID, Uuid
from ottla.share.partition import AcknowledgeType
from ottla.wire.api import incremental_alter_configs as configs
from ottla.wire.api import share_acknowledge as ack
from ottla.wire.api import share_fetch as fetch
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.wire.batch import build, read
from tests.broker.wire_client import WireClient

GAP, ACCEPT, RELEASE, REJECT, RENEW = map(int, AcknowledgeType)
_GROUP_RESOURCE = 32
_PATIENCE_S = 30
_COMING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
_names = count()

#: (partition, first offset, last offset, acknowledge types)
Said = tuple[int, int, int, Sequence[int]]


class Got(NamedTuple):
    """A record that a member acquired."""

    partition: int
    offset: int
    value: bytes
    delivery_count: int


def create(client: WireClient, partitions: int = 1) -> tuple[str, Uuid]:
    """A new topic; its name and id."""
    name = f"shared-{next(_names)}"
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    response = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    assert response.topics[0].error_code == 0, response
    return name, Uuid(response.topics[0].topic_id)


def topic_id_of(client: WireClient, name: str) -> Uuid:
    response = client.ask(MetadataRequest(topics=[MetadataRequestTopic(topic_id=NO_UUID, name=name)]), 12)
    return Uuid(response.topics[0].topic_id)


def produce(client: WireClient, topic: str, *values: bytes, partition: int = 0, **batch: Any) -> int:
    """One batch; its first offset."""
    now_ms = time_ns() // 1_000_000
    data = build([(now_ms, None, value, ()) for value in values], **batch)
    transactional_id = "t" if batch.get("transactional") else None
    part = PartitionProduceData(index=partition, records=data)
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        transactional_id=transactional_id,
        topic_data=[TopicProduceData(name=topic, partition_data=[part])],
    )
    answer = client.ask(request, 9).responses[0].partition_responses[0]
    assert answer.error_code == 0, answer
    return int(answer.base_offset)


def set_group(client: WireClient, group_id: str, values: Mapping[str, str]) -> None:
    """Settings of a group."""
    changes = [configs.AlterableConfig(name=name, config_operation=0, value=value) for name, value in values.items()]
    resource = configs.AlterConfigsResource(resource_type=_GROUP_RESOURCE, resource_name=group_id, configs=changes)
    response = client.ask(configs.IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert response.responses[0].error_code == 0, response


class Member:
    """One member with a connection and a share session."""

    def __init__(self, bootstrap: str, group_id: str, topic: str, member_id: str = "") -> None:
        self.client = WireClient(bootstrap)
        self.group_id = group_id
        self.member_id = member_id or f"m{next(_names)}"
        self.topic = topic
        self.topic_id = topic_id_of(self.client, topic)
        self.epoch = 0
        self.session_epoch = 0
        self.assigned: list[int] = []

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.sock.close()

    # -- membership

    def beat(self, **change: Any) -> Any:
        """One heartbeat."""
        request = ShareGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            subscribed_topic_names=[self.topic] if self.epoch == 0 else None,
        )
        for name, value in change.items():
            setattr(request, name, value)
        response = self.client.ask(request, 1)
        if response.error_code == 0 and response.member_epoch >= 0:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self.assigned = sorted(
                    index for each in response.assignment.topic_partitions for index in each.partitions
                )
        return response

    def join(self) -> Member:
        """Heartbeats until it has partitions; until its coordinator is there, if need be."""
        deadline = monotonic() + _PATIENCE_S
        while monotonic() < deadline:
            response = self.beat()
            if response.error_code in _COMING:
                self.client.ask(FindCoordinatorRequest(coordinator_keys=[self.group_id]), 4)
                continue
            assert response.error_code == 0, response
            if self.assigned:
                return self
        raise AssertionError("no partition was assigned")

    def leave(self) -> None:
        assert self.beat(member_epoch=-1).error_code == 0

    # -- records

    def fetch(
        self,
        *said: Said,
        wait_ms: int = 0,
        records: int = 500,
        strict: bool = False,
        version: int = 2,
        partitions: Sequence[int] | None = None,
        **change: Any,
    ) -> Any:
        """One ShareFetch; the response."""
        self.send_fetch(
            *said, wait_ms=wait_ms, records=records, strict=strict, version=version, partitions=partitions, **change
        )
        return self.receive_fetch(version)

    def send_fetch(
        self,
        *said: Said,
        wait_ms: int = 0,
        records: int = 500,
        strict: bool = False,
        version: int = 2,
        partitions: Sequence[int] | None = None,
        **change: Any,
    ) -> None:
        wanted = self.assigned if partitions is None else partitions
        if self.session_epoch != 0 and partitions is None:
            wanted = []
        asked = [fetch.FetchPartition(partition_index=index) for index in {*wanted, *(each[0] for each in said)}]
        for each in asked:
            each.acknowledgement_batches = [
                fetch.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
                for index, first, last, types in said
                if index == each.partition_index
            ]
        request = fetch.ShareFetchRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=self.session_epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=records,
            batch_size=records,
            topics=[fetch.FetchTopic(topic_id=self.topic_id, partitions=asked)] if asked else [],
        )
        if version >= 2:
            request.share_acquire_mode = int(strict)
        for name, value in change.items():
            setattr(request, name, value)
        self.client.send(request, version)

    def receive_fetch(self, version: int = 2) -> Any:
        response = self.client.receive(78, version)
        if response.error_code == 0 and self.session_epoch >= 0:
            self.session_epoch += 1
        return response

    def acknowledge(self, *said: Said, version: int = 2, **change: Any) -> Any:
        """One ShareAcknowledge; the response."""
        self.send_acknowledge(*said, version=version, **change)
        response = self.client.receive(79, version)
        if response.error_code == 0 and self.session_epoch >= 0:
            self.session_epoch += 1
        return response

    def send_acknowledge(self, *said: Said, version: int = 2, **change: Any) -> None:
        partitions = {index: ack.AcknowledgePartition(partition_index=index) for index, *_ in said}
        for index, first, last, types in said:
            partitions[index].acknowledgement_batches.append(
                ack.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
            )
        request = ack.ShareAcknowledgeRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=self.session_epoch,
            topics=[ack.AcknowledgeTopic(topic_id=self.topic_id, partitions=list(partitions.values()))],
        )
        for name, value in change.items():
            setattr(request, name, value)
        self.client.send(request, version)

    def take(self, *said: Said, wait_ms: int = 0, tries: int = 20, **asked: Any) -> list[Got]:
        """Records, from as many fetches as it takes to get any."""
        for _ in range(tries):
            got = records_of(self.fetch(*said, wait_ms=wait_ms, **asked))
            if got:
                return got
            said = ()
        return []


def records_of(response: Any) -> list[Got]:
    """The acquired records of a response; those around them in the same batches are somebody else's."""
    assert response.error_code == 0, response
    got = []
    for topic in response.responses:
        for part in topic.partitions:
            assert part.error_code == 0, part
            counts = {
                offset: each.delivery_count
                for each in part.acquired_records
                for offset in range(each.first_offset, each.last_offset + 1)
            }
            for batch in read(part.records or b""):
                if batch.header.is_control:
                    continue
                for record in batch.records():
                    if record.offset in counts:
                        value = bytes(record.value or b"")
                        got.append(Got(part.partition_index, record.offset, value, counts[record.offset]))
    return got


def outcomes(response: Any) -> list[tuple[int, int]]:
    """(partition, error code) of what was acknowledged."""
    return [
        (part.partition_index, getattr(part, "acknowledge_error_code", part.error_code))
        for topic in response.responses
        for part in topic.partitions
    ]
