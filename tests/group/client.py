"""Clients for tests: a classic consumer and a consumer of the new protocol, each a few lines of what real ones do."""

from dataclasses import dataclass, field
from typing import Any

from ottla.group.records.subscription import read_assignment, write_assignment
from ottla.group.state.consumer import ConsumerState
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import Uuid
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.compile import encode
from ottla.wire.record.consumer_protocol import (
    AssignedTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from tests.group.host import Host

SESSION_MS = 30_000
REBALANCE_MS = 60_000


def subscription(topics: list[str], owned: dict[str, list[int]] | None = None, version: int = 3) -> bytes:
    message = ConsumerProtocolSubscription(
        topics=topics,
        owned_partitions=[TopicPartition(topic=name, partitions=indexes) for name, indexes in (owned or {}).items()],
    )
    return version.to_bytes(2, "big") + encode(message, version)


def assignment(partitions: dict[str, list[int]]) -> bytes:
    assigned = [AssignedTopicPartition(topic=name, partitions=indexes) for name, indexes in partitions.items()]
    return write_assignment(ConsumerProtocolAssignment(assigned_partitions=assigned), 3)


@dataclass
class Classic:
    """A consumer of the classic protocol. It does what it is told and keeps what it was told."""

    host: Host
    group_id: str = "g"
    topics: list[str] = field(default_factory=lambda: ["orders"])
    instance_id: str | None = None
    version: int = 9
    protocols: list[str] = field(default_factory=lambda: ["range"])
    client_id: str = "client"
    member_id: str = ""
    generation: int = -1
    owned: dict[str, list[int]] = field(default_factory=dict)
    members: list[str] = field(default_factory=list)
    leader: str = ""
    ticket: int = 0

    def join_request(self) -> JoinGroupRequest:
        metadata = subscription(self.topics, self.owned)
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name in self.protocols],
        )

    def join(self) -> "Classic":
        """Send JoinGroup, twice if the member id must first be given; the answer may wait."""
        self.ticket = self.host.ask(self.join_request(), self.version, self.client_id)
        answer = self.host.answers.get(self.ticket)
        if answer is not None and answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.ticket = self.host.ask(self.join_request(), self.version, self.client_id)
        return self

    @property
    def waits(self) -> bool:
        return self.host.waits(self.ticket)

    def joined(self) -> Any:
        """Take the answer to JoinGroup in."""
        answer = self.host.answers[self.ticket]
        if answer.error_code == ErrorCode.NONE:
            self.member_id, self.generation, self.leader = answer.member_id, answer.generation_id, answer.leader
            self.members = [member.member_id for member in answer.members]
        return answer

    @property
    def leads(self) -> bool:
        return self.leader == self.member_id

    def sync(self, given: dict[str, dict[str, list[int]]] | None = None) -> int:
        """Send SyncGroup; a leader deals out `given`, or the partitions of its topics in turn."""
        assignments = []
        if self.leads:
            shares = given if given is not None else self._deal()
            assignments = [
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment(share))
                for member_id, share in shares.items()
            ]
        self.ticket = self.host.ask(
            SyncGroupRequest(
                group_id=self.group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                protocol_type="consumer",
                protocol_name=None if self.version < 9 else self._protocol(),
                assignments=assignments,
            ),
            5 if self.version >= 9 else 3,
        )
        return self.ticket

    def _protocol(self) -> str:
        return (
            str(self.host.group(self.group_id).protocol_name or self.protocols[0])
            if self.is_classic
            else self.protocols[0]
        )

    @property
    def is_classic(self) -> bool:
        return hasattr(self.host.group(self.group_id), "protocol_name")

    def _deal(self) -> dict[str, dict[str, list[int]]]:
        shares: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in self.members}
        for topic in self.topics:
            for partition in range(self.host.topics.partition_count(topic)):
                taker = self.members[partition % len(self.members)]
                shares[taker].setdefault(topic, []).append(partition)
        return shares

    def synced(self) -> Any:
        """Take the answer to SyncGroup in."""
        answer = self.host.answers[self.ticket]
        if answer.error_code == ErrorCode.NONE:
            self.owned = {}
            if answer.assignment:
                read = read_assignment(answer.assignment)
                self.owned = {topic.topic: list(topic.partitions) for topic in read.assigned_partitions}
        return answer

    def heartbeat(self) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return ErrorCode(self.host.call(request, 4).error_code)

    def leave(self) -> Any:
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        return self.host.call(LeaveGroupRequest(group_id=self.group_id, members=[identity]), 5)

    def commit(self, partition: int, offset: int, topic: str = "orders") -> ErrorCode:
        request = commit_request(
            self.group_id, {topic: {partition: offset}}, self.generation, self.member_id, self.instance_id
        )
        return ErrorCode(self.host.call(request, 9).topics[0].partitions[0].error_code)


def stable_group(host: Host, count: int, **options: Any) -> list[Classic]:
    """`count` classic members in a stable group, the first of them the leader."""
    members = [Classic(host, **options).join() for _ in range(count)]
    settle(host, members)
    return members


def settle(host: Host, members: list[Classic]) -> None:
    """Bring members whose joins are sent to a stable group."""
    if any(member.waits for member in members):
        host.pass_ms(2 * host.settings.group_initial_rebalance_delay_ms + 1)
    for member in members:
        assert member.joined().error_code == ErrorCode.NONE, member.joined()
    # Followers first: their syncs wait for the leader's.
    for member in sorted(members, key=lambda one: one.leads):
        member.sync()
    for member in members:
        assert member.synced().error_code == ErrorCode.NONE


@dataclass
class Consumer:
    """A consumer of the KIP-848 protocol. It gives up at once what it is told to."""

    host: Host
    member_id: str
    group_id: str = "g"
    topics: list[str] | None = field(default_factory=lambda: ["orders"])
    regex: str | None = None
    instance_id: str | None = None
    rack_id: str | None = None
    assignor: str | None = None
    epoch: int = 0
    owned: dict[Uuid, list[int]] = field(default_factory=dict)

    def request(self, *, full: bool) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch, instance_id=self.instance_id
        )
        if full:
            request.rebalance_timeout_ms = REBALANCE_MS
            request.subscribed_topic_names = self.topics
            request.subscribed_topic_regex = self.regex
            request.server_assignor = self.assignor
            request.rack_id = self.rack_id
            request.topic_partitions = self.owns()
        return request

    def owns(self) -> list[TopicPartitions]:
        return [TopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in self.owned.items()]

    def send(self, request: ConsumerGroupHeartbeatRequest) -> Any:
        """Send a heartbeat and do what the answer says."""
        answer = self.host.call(request, 1)
        if answer.error_code == ErrorCode.NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = {one.topic_id: list(one.partitions) for one in answer.assignment.topic_partitions}
        return answer

    def join(self) -> Any:
        """(Re)join with nothing."""
        self.epoch, self.owned = 0, {}
        return self.send(self.request(full=True))

    def beat(self, *, full: bool = True) -> Any:
        """Heartbeat; in full it says what it owns."""
        return self.send(self.request(full=full))

    def leave(self, epoch: int = -1) -> Any:
        self.epoch, self.owned = epoch, {}
        return self.host.call(self.request(full=False), 1)

    def partitions(self, topic: str = "orders") -> list[int]:
        topic_id = self.host.topics.topic_id(topic)
        assert topic_id is not None
        return sorted(self.owned.get(topic_id, []))


def rounds(members: list[Consumer], count: int = 4) -> None:
    """Some heartbeats of each, as time goes by."""
    for _ in range(count):
        members[0].host.pass_ms(1_000)
        for member in members:
            assert member.beat().error_code == ErrorCode.NONE


def settled(host: Host, *names: str, **options: Any) -> list[Consumer]:
    """Members of a consumer group that all have what they shall have."""
    members = [Consumer(host, name, **options) for name in names]
    for member in members:
        assert member.join().error_code == ErrorCode.NONE
    rounds(members)
    assert host.group().state is ConsumerState.STABLE
    return members


def commit_request(
    group_id: str,
    offsets: dict[str, dict[int, int]],
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
    metadata: str = "",
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=metadata
                    )
                    for index, offset in partitions.items()
                ],
            )
            for name, partitions in offsets.items()
        ],
    )


def fetched(
    host: Host, group_id: str, asked: dict[str, list[int]], *, stable: bool = False, **member: Any
) -> dict[tuple[str, int], tuple[int, ErrorCode]]:
    """(offset, error) of each partition."""
    topics = [OffsetFetchRequestTopics(name=name, partition_indexes=indexes) for name, indexes in asked.items()]
    group = OffsetFetchRequestGroup(group_id=group_id, topics=topics, **member)
    answer = host.call(OffsetFetchRequest(groups=[group], require_stable=stable), 9)
    return {
        (topic.name, one.partition_index): (one.committed_offset, ErrorCode(one.error_code))
        for topic in answer.groups[0].topics
        for one in topic.partitions
    }


def commit(host: Host, offsets: dict[int, int], topic: str = "orders", **member: Any) -> list[ErrorCode]:
    answer = host.call(commit_request("g", {topic: offsets}, **member), 8)
    return [ErrorCode(one.error_code) for one in answer.topics[0].partitions]


def transactional(host: Host, offsets: dict[int, int], producer_id: int, **member: Any) -> list[ErrorCode]:
    request = TxnOffsetCommitRequest(
        transactional_id="t",
        group_id="g",
        producer_id=producer_id,
        topics=[
            TxnOffsetCommitRequestTopic(
                name="orders",
                partitions=[
                    TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
                    for index, offset in offsets.items()
                ],
            )
        ],
        **member,
    )
    answer = host.call(request, 5)
    return [ErrorCode(one.error_code) for one in answer.topics[0].partitions]
