"""Share groups by Hypothesis: members, topics, offsets and leaders come and go; the log alone tells the state."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.api import alter_share_group_offsets as alter
from ottla.wire.api.delete_groups import DeleteGroupsRequest
from ottla.wire.api.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from tests.group.host import Host, Topics
from tests.group.test_share_group import Sharer, settle

_TOPICS = ("orders", "clicks", "views")
_SUBSCRIPTIONS = st.sampled_from([["orders"], ["clicks", "orders"], ["views"], ["orders", "none"]])
_MEMBERS = st.sampled_from(["a", "b", "c"])


class ShareGroups(RuleBasedStateMachine):
    """One share group and a share coordinator that can fail."""

    def __init__(self) -> None:
        super().__init__()
        self.host = Host(topics=Topics({"orders": 3, "clicks": 1, "views": 2}))
        self.sharers: dict[str, Sharer] = {}

    @rule(member=_MEMBERS, subscriptions=st.lists(_SUBSCRIPTIONS, min_size=1, max_size=3))
    def beat(self, member: str, subscriptions: list[list[str]]) -> None:
        for topics in subscriptions:
            self.beat_once(member, topics)

    def beat_once(self, member: str, topics: list[str]) -> None:
        sharer = self.sharers.setdefault(member, Sharer(self.host, member, topics))
        response = sharer.beat(topics=topics)
        assert response.error_code in (0, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
        if response.error_code:
            # It was fenced, or the group deleted: it joins again.
            del self.sharers[member]
            return
        sharer.topics = topics
        for topic_id, partitions in sharer.assigned.items():
            held = self.host.group().initialized.get(topic_id)
            if held is None:
                # Of a topic that is gone: a member keeps it until the group has a new assignment.
                assert self.host.topics.topic_name(topic_id) is None
            else:
                assert held.name in topics and set(partitions) <= held.partitions

    @precondition(lambda self: self.sharers)
    @rule(member=_MEMBERS)
    def leave(self, member: str) -> None:
        sharer = self.sharers.pop(member, None)
        if sharer is not None:
            sharer.leave()

    @rule(duration_ms=st.sampled_from([500, 5_000, 50_000]))
    def pass_ms(self, duration_ms: int) -> None:
        self.host.pass_ms(duration_ms)

    @rule(name=st.sampled_from(_TOPICS))
    def grow(self, name: str) -> None:
        count = self.host.topics.partition_count(name)
        if 0 < count < 6:
            self.host.topics.grow(name, count + 1)
            self.host.change_topics(changed=[name])

    @rule(name=st.sampled_from(_TOPICS))
    def recreate(self, name: str) -> None:
        topic_id = self.host.topics.topic_id(name)
        assert topic_id is not None
        self.host.topics.delete(name)
        self.host.change_topics(deleted=[(name, topic_id)])
        self.host.topics.create(name, 2)
        self.host.change_topics(created=[name])

    @rule(name=st.sampled_from(_TOPICS), offset=st.integers(0, 9))
    def set_offset(self, name: str, offset: int) -> None:
        partition = alter.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=offset)
        topic = alter.AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=[partition])
        response = self.host.call(alter.AlterShareGroupOffsetsRequest(group_id="g", topics=[topic]), 0)
        group = self.host.group()
        assert (response.error_code == ErrorCode.NON_EMPTY_GROUP) == bool(group is not None and group.members)

    @rule(name=st.sampled_from(_TOPICS))
    def delete_offset(self, name: str) -> None:
        topics = [DeleteShareGroupOffsetsRequestTopic(topic_name=name)]
        self.host.call(DeleteShareGroupOffsetsRequest(group_id="g", topics=topics), 0)

    @rule()
    def delete_group(self) -> None:
        code = self.host.call(DeleteGroupsRequest(groups_names=["g"]), 2).results[0].error_code
        assert code in (0, ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND)
        if not code:
            assert self.host.group() is None
            self.sharers.clear()

    @rule(fails=st.booleans())
    def restart_while_state_is_begun(self, fails: bool) -> None:
        """The leader goes, perhaps while the share coordinator works."""
        self.host.share_waits = True
        member = Sharer(self.host, "late", ["orders", "views"])
        ticket = self.host.ask(_join(member), 1)
        if self.host.waits(ticket) and fails:
            error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            asked = self.host.share_calls[0]
            assert hasattr(asked, "offsets")
            topic_id = next(iter(asked.offsets))
            self.host.answer_share_calls({(topic_id, 0): error})
            self.host.change_topics()
            assert not self.host.waits(ticket)
        self.host.share_waits = False
        self.host.share_calls.clear()
        self.host.restart()
        assert not self.host.waits(ticket)

    @rule()
    def everything_is_shared_out_in_the_end(self) -> None:
        self.host.pass_ms(60_000)
        self.sharers.clear()
        one, two = (Sharer(self.host, name, ["clicks", "orders", "views"]) for name in ("x", "y"))
        one.beat()
        two.beat()
        settle(self.host, one, two)
        self.grow("views")
        settle(self.host, one, two)
        given = {(topic_id, index) for each in (one, two) for topic_id, part in each.assigned.items() for index in part}
        wanted = {
            (self.host.topics.topic_id(name), index)
            for name in _TOPICS
            for index in range(self.host.topics.partition_count(name))
        }
        assert given == wanted
        assert {("g", *key) for key in given} <= self.host.share_states.keys()
        one.leave()
        two.leave()

    @invariant()
    def the_log_alone_tells_the_state(self) -> None:
        live, replayed = self.host.group(), self.host.replayed_group()
        assert (live is None) == (replayed is None)
        if live is None:
            return
        for name in ("epoch", "metadata_hash", "assignment_epoch", "members", "targets"):
            assert getattr(live, name) == getattr(replayed, name), name
        for name in ("initializing", "initialized", "deleting"):
            assert getattr(live, name) == getattr(replayed, name), name
            for topic_id in getattr(live, name):
                assert self.host.topics.topic_name(topic_id) is not None, f"a topic that is gone is {name}"


def _join(member: Sharer) -> object:
    from ottla.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest

    return ShareGroupHeartbeatRequest(
        group_id="g", member_id=member.member_id, member_epoch=0, subscribed_topic_names=member.topics
    )


ShareGroups.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestShareGroups = ShareGroups.TestCase
