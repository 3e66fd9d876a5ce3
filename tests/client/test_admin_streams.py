"""The admin client on streams groups: listed, described, their offsets set, deleted. Runs against Apache Kafka too."""

from collections.abc import Iterator
from functools import partial

import pytest

from ottla.client import Admin, CommittedOffset, ConfigResource, ErrorCode, GroupType, ResourceType, TopicPartition
from ottla.wire.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Topology
from tests.broker.wire_client import WireClient
from tests.client.conftest import eventually, refusal
from tests.group.client import commit_request
from tests.group.streams import info, join_request, reader


class Member:
    """A member that says what a test says."""

    def __init__(self, bootstrap: str, group: str, topology: Topology) -> None:
        self._client = WireClient(bootstrap, client_id="streams-test")
        self._group = group
        self._topology = topology
        self.epoch = 0

    def beat(self) -> None:
        """A heartbeat; the first joins."""
        request = StreamsGroupHeartbeatRequest(group_id=self._group, member_id="m", member_epoch=self.epoch)
        if not self.epoch:
            request = join_request(self._group, "m", self._topology)
        answer = self._client.ask(request, 0)
        assert answer.error_code in (ErrorCode.NONE, *_COMING), answer
        self.epoch = answer.member_epoch

    def commit(self, topic: str, offsets: dict[int, int]) -> list[int]:
        request = commit_request(self._group, {topic: offsets}, self.epoch, "m")
        return [one.error_code for one in self._client.ask(request, 9).topics[0].partitions]

    def leave(self) -> None:
        request = StreamsGroupHeartbeatRequest(group_id=self._group, member_id="m", member_epoch=-1)
        assert self._client.ask(request, 0).error_code == ErrorCode.NONE

    def close(self) -> None:
        self._client.sock.close()


_COMING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


@pytest.fixture
def member(bootstrap: str, admin: Admin, topic: str, name: str) -> Iterator[Member]:
    """The one member of a group that reads a topic and keeps state."""
    settings = {"streams.initial.rebalance.delay.ms": "0", "streams.assignment.interval.ms": "0"}
    admin.alter_config(ConfigResource(ResourceType.GROUP, name), settings)
    # Who asks for a coordinator brings its topic about.
    assert refusal(partial(admin.describe_streams_group, name)) is ErrorCode.GROUP_ID_NOT_FOUND
    part = reader("0", [topic], state_changelog_topics=[info(f"{name}-changelog")])
    one = Member(bootstrap, name, Topology(subtopologies=[part]))

    def works() -> bool:
        one.beat()
        return bool(one.epoch) and bool(admin.describe_streams_group(name).members[0].assignment.active)

    eventually(works, 60)
    yield one
    one.close()


def test_a_streams_group_is_listed_and_described(admin: Admin, topic: str, name: str, member: Member) -> None:
    (listed,) = [group for group in admin.list_groups(types=[GroupType.STREAMS]) if group.id == name]
    assert (listed.type, listed.state, listed.protocol_type) == (GroupType.STREAMS, "Stable", "streams")
    group = admin.describe_streams_group(name)
    assert (group.state, group.topology_epoch) == ("Stable", 0)
    assert group.epoch == group.assignment_epoch == member.epoch
    (part,) = group.subtopologies
    assert (part.id, part.source_topics, part.state_changelog_topics) == ("0", (topic,), (f"{name}-changelog",))
    (one,) = group.members
    assert (one.id, one.epoch, one.client_id, one.process_id) == ("m", member.epoch, "streams-test", "process")
    assert one.assignment == one.target
    assert one.assignment.active == (("0", 0), ("0", 1), ("0", 2))
    assert {topic, f"{name}-changelog"} <= {listing.name for listing in admin.list_topics()}


def test_offsets_of_a_streams_group_are_read_and_set_and_it_is_deleted(
    admin: Admin, topic: str, name: str, member: Member
) -> None:
    assert member.commit(topic, {0: 5, 1: 6}) == [ErrorCode.NONE, ErrorCode.NONE]
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert {where: one.offset for where, one in admin.list_group_offsets(name).items()} == {first: 5, second: 6}
    assert refusal(lambda: admin.alter_group_offsets(name, {first: CommittedOffset(1)}).check()) in (
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NON_EMPTY_GROUP,
    )
    assert refusal(partial(admin.delete_group, name)) is ErrorCode.NON_EMPTY_GROUP
    member.leave()
    admin.alter_group_offsets(name, {first: CommittedOffset(1)}).check()
    admin.delete_group_offsets(name, [second]).check()
    assert {where: one.offset for where, one in admin.list_group_offsets(name).items()} == {first: 1}
    assert admin.describe_streams_group(name).state == "Empty"
    admin.delete_group(name)
    assert refusal(partial(admin.describe_streams_group, name)) is ErrorCode.GROUP_ID_NOT_FOUND
