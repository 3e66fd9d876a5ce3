"""A member of a streams group for tests: in a few lines what an instance of Kafka Streams does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.group.setting import CoordinatorSettings
from ottla.group.state.streams import StreamsState
from ottla.group.topology.task import Tasks
from ottla.kernel.error import ErrorCode
from ottla.wire.api.streams_group_describe import StreamsGroupDescribeRequest
from ottla.wire.api.streams_group_heartbeat import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from tests.group.host import Host

REBALANCE_MS = 60_000
#: Without the delay in which an application gathers.
AT_ONCE = CoordinatorSettings(group_streams_initial_rebalance_delay_ms=0)
#: And with assignments as often as they are needed.
QUICK = CoordinatorSettings(group_streams_initial_rebalance_delay_ms=0, group_streams_assignment_interval_ms=0)
#: How often an application says what it owns while it waits for tasks.
BEAT_MS = 1_000


def info(name: str, partitions: int = 0, **configs: str) -> TopicInfo:
    """An internal topic."""
    pairs = [KeyValue(key=key.replace("_", "."), value=value) for key, value in configs.items()]
    return TopicInfo(name=name, partitions=partitions, topic_configs=pairs)


def reader(subtopology: str = "0", topics: Sequence[str] = ("orders",), **more: Any) -> Subtopology:
    """A part that reads topics and keeps nothing."""
    return Subtopology(subtopology_id=subtopology, source_topics=list(topics), **more)


def counter(subtopology: str = "0", topic: str = "orders") -> Subtopology:
    """A part that reads a topic and keeps state."""
    return reader(subtopology, [topic], state_changelog_topics=[info(f"app-{subtopology}-changelog")])


def word_count(topic: str = "orders") -> Topology:
    """Two parts: one writes a repartition topic, the other reads it and keeps state."""
    words = "app-words-repartition"
    splits = reader("0", [topic], repartition_sink_topics=[words])
    counts = Subtopology(
        subtopology_id="1",
        repartition_source_topics=[info(words, cleanup_policy="delete")],
        state_changelog_topics=[info("app-counts-changelog", cleanup_policy="compact")],
    )
    return Topology(epoch=0, subtopologies=[splits, counts])


def copartitioned(subtopology: Subtopology) -> Subtopology:
    """All that it reads is joined."""
    subtopology.copartition_groups = [
        CopartitionGroup(
            source_topics=list(range(len(subtopology.source_topics))),
            repartition_source_topics=list(range(len(subtopology.repartition_source_topics))),
        )
    ]
    return subtopology


def join_request(group_id: str, member_id: str, topology: Topology) -> StreamsGroupHeartbeatRequest:
    """The first heartbeat of a member."""
    return StreamsGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        endpoint_information_epoch=-1,
        rebalance_timeout_ms=REBALANCE_MS,
        topology=topology,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="process",
        client_tags=[],
    )


@dataclass
class Streamer:
    """A member: one thread of an instance. It does what it is told and keeps what it was told."""

    host: Host
    member_id: str
    topology: Topology = field(default_factory=lambda: Topology(subtopologies=[reader()]))
    group_id: str = "g"
    process_id: str = ""
    endpoint: tuple[str, int] | None = None
    epoch: int = 0
    active: dict[str, tuple[int, ...]] = field(default_factory=dict)
    standby: dict[str, tuple[int, ...]] = field(default_factory=dict)
    #: Statuses of the last answer: code and detail.
    statuses: list[tuple[int, str]] = field(default_factory=list)
    endpoint_epoch: int = -1
    #: By endpoint: the active partitions by topic.
    hosts: dict[tuple[str, int], dict[str, list[int]]] = field(default_factory=dict)
    #: Internal topics that the last answer found missing.
    missing: dict[str, int] = field(default_factory=dict)

    def request(self, **change: Any) -> StreamsGroupHeartbeatRequest:
        """What it would send now."""
        if self.epoch == 0:
            request = join_request(self.group_id, self.member_id, self.topology)
            request.process_id = self.process_id or self.member_id
            if self.endpoint is not None:
                request.user_endpoint = Endpoint(host=self.endpoint[0], port=self.endpoint[1])
        else:
            request = StreamsGroupHeartbeatRequest(
                group_id=self.group_id,
                member_id=self.member_id,
                member_epoch=self.epoch,
                endpoint_information_epoch=self.endpoint_epoch,
                active_tasks=task_ids(self.active),
                standby_tasks=task_ids(self.standby),
                warmup_tasks=[],
            )
        for name, value in change.items():
            setattr(request, name, value)
        return request

    def send(self, request: StreamsGroupHeartbeatRequest) -> Any:
        """A heartbeat; what its answer says is done."""
        ticket = self.host.ask(request, 0)
        answer = self.host.answers[ticket]
        if answer.error_code:
            return answer
        self.epoch = answer.member_epoch
        self.statuses = [(status.status_code, status.status_detail) for status in answer.status]
        self.missing = {topic.name: topic.partitions for topic in self.host.missing[ticket]}
        if answer.active_tasks is not None:
            self.active, self.standby = tasks_of(answer.active_tasks), tasks_of(answer.standby_tasks)
        if answer.partitions_by_user_endpoint is not None:
            self.endpoint_epoch = answer.endpoint_information_epoch
            self.hosts = {
                (each.user_endpoint.host, each.user_endpoint.port): {
                    part.topic: list(part.partitions) for part in each.active_partitions
                }
                for each in answer.partitions_by_user_endpoint
            }
        return answer

    def join(self) -> Any:
        """(Re)join with nothing."""
        self.epoch, self.active, self.standby = 0, {}, {}
        return self.send(self.request())

    def beat(self) -> Any:
        """A heartbeat that says what it owns."""
        return self.send(self.request())

    def leave(self, **change: Any) -> Any:
        nothing = {"topology": None, "active_tasks": None, "standby_tasks": None, "warmup_tasks": None}
        request = self.request(member_epoch=-1, **nothing, **change)
        self.epoch, self.active, self.standby = 0, {}, {}
        return self.host.call(request, 0)

    @property
    def codes(self) -> list[int]:
        return [code for code, _ in self.statuses]


def task_ids(tasks: Tasks) -> list[TaskIds]:
    return [TaskIds(subtopology_id=name, partitions=list(partitions)) for name, partitions in tasks.items()]


def tasks_of(ids: Sequence[TaskIds]) -> dict[str, tuple[int, ...]]:
    return {each.subtopology_id: tuple(each.partitions) for each in ids}


def rounds(members: Sequence[Streamer], count: int = 5) -> None:
    """Some heartbeats of each, as time goes by; who is fenced joins again."""
    for _ in range(count):
        members[0].host.pass_ms(BEAT_MS)
        for member in members:
            answer = member.beat()
            if answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
                answer = member.join()
            assert answer.error_code == ErrorCode.NONE, answer


def make_missing(host: Host, missing: Mapping[str, int]) -> None:
    """What the driver does with the internal topics that an answer names."""
    made = [name for name in missing if not host.topics.partition_count(name)]
    for name in made:
        host.topics.create(name, missing[name])
    if made:
        host.change_topics(created=made)


def settled(host: Host, *names: str, **options: Any) -> list[Streamer]:
    """Members of a streams group that all have what they shall have."""
    members = [Streamer(host, name, **options) for name in names]
    for member in members:
        assert member.join().error_code == ErrorCode.NONE
        make_missing(host, member.missing)
    rounds(members)
    assert host.group().state is StreamsState.STABLE
    return members


def described(host: Host, group_id: str = "g") -> Any:
    """The group as people see it."""
    return host.call(StreamsGroupDescribeRequest(group_ids=[group_id]), 0).groups[0]
