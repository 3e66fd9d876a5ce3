"""Streams groups by Hypothesis: instances, topics, settings and leaders come and go; the log alone tells the state."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.group.event import SettingsChanged
from ottla.group.setting import CoordinatorSettings, GroupOverride
from ottla.group.state.streams import StreamsState
from ottla.group.topology.task import Tasks
from ottla.kernel.error import ErrorCode
from ottla.wire.api.delete_groups import DeleteGroupsRequest
from tests.group.client import commit_request
from tests.group.host import Host, Topics
from tests.group.streams import Streamer, described, make_missing, task_ids, word_count

_INTERNAL = ("app-words-repartition", "app-counts-changelog")
#: Two in one process, and two in processes of their own.
_PROCESSES = {"a": "p", "b": "p", "c": "q", "d": "r"}
_MEMBERS = st.sampled_from(sorted(_PROCESSES))
_GONE = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)


class StreamsGroups(RuleBasedStateMachine):
    """One application with a repartition topic and state."""

    def __init__(self) -> None:
        super().__init__()
        delay = CoordinatorSettings(group_streams_initial_rebalance_delay_ms=500)
        self.host = Host(delay, Topics({"orders": 3}))
        self.members: dict[str, Streamer] = {}
        self.standbys = 0
        #: What slow members go on with: active and standby.
        self.slow: dict[str, tuple[Tasks, Tasks]] = {}

    # -- members

    @rule(members=st.lists(_MEMBERS, min_size=1, max_size=4))
    def beat(self, members: list[str]) -> None:
        """Heartbeats, of members that are there or join."""
        for name in members:
            member = self.members.get(name)
            self.slow.pop(name, None)
            if member is None:
                member = Streamer(self.host, name, word_count(), process_id=_PROCESSES[name], endpoint=("h", ord(name)))
                assert member.join().error_code == ErrorCode.NONE
                self.members[name] = member
                continue
            answer = member.beat()
            if answer.error_code == ErrorCode.INVALID_REQUEST:
                # It has tasks that there are not any more: a topic was deleted and made anew, smaller.
                assert answer.error_message.startswith("Task "), answer
            else:
                assert answer.error_code in (ErrorCode.NONE, *_GONE), answer
            if answer.error_code:
                del self.members[name]
                continue
            assigned = self.host.group().members[name].assigned
            assert member.active == {each: tuple(sorted(epochs)) for each, epochs in assigned.active.items()}
            assert member.standby == assigned.standby

    @rule(name=_MEMBERS)
    def lose_an_answer(self, name: str) -> None:
        """The coordinator has gone on, the member does not know."""
        if name in self.members:
            self.host.ask(self.members[name].request(), 0)

    @rule(name=_MEMBERS, says=st.booleans())
    def be_slow(self, name: str, says: bool) -> None:
        """A member that is told to give something up and goes on with it, whether it says so or says nothing."""
        member = self.members.get(name)
        if member is None:
            return
        active, standby = self.slow.setdefault(name, (member.active, member.standby))
        said: dict[str, Any] = {"active_tasks": None, "standby_tasks": None, "warmup_tasks": None}
        if says:
            said = {"active_tasks": task_ids(active), "standby_tasks": task_ids(standby)}
        member.send(member.request(**said))

    @precondition(lambda self: self.members)
    @rule(name=_MEMBERS, all_shall_end=st.booleans())
    def leave(self, name: str, all_shall_end: bool) -> None:
        member = self.members.pop(name, None)
        if member is not None:
            member.leave(shutdown_application=all_shall_end)

    @rule(name=_MEMBERS)
    def commit(self, name: str) -> None:
        member = self.members.get(name)
        group = self.host.group()
        if member is None or group is None or name not in group.members:
            return
        request = commit_request("g", {"orders": {0: 1}}, member.epoch, name)
        error = self.host.call(request, 9).topics[0].partitions[0].error_code
        present = group.members[name]
        since = present.epoch_of("0", 0)
        may = member.epoch == present.epoch or (since is not None and since <= member.epoch < present.epoch)
        missing = not self.host.topics.partition_count("orders")
        assert error == (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if missing else ErrorCode.NONE if may else ErrorCode.STALE_MEMBER_EPOCH
        )

    # -- what is around them

    @rule(duration_ms=st.sampled_from([500, 5_000, 50_000, 70_000]))
    def pass_ms(self, duration_ms: int) -> None:
        self.host.pass_ms(duration_ms)

    @rule()
    def make_internal_topics(self) -> None:
        for member in self.members.values():
            make_missing(self.host, member.missing)

    @rule(name=st.sampled_from(["orders", *_INTERNAL]))
    def grow(self, name: str) -> None:
        count = self.host.topics.partition_count(name)
        if 0 < count < 5:
            self.host.topics.grow(name, count + 1)
            self.host.change_topics(changed=[name])

    @rule(name=st.sampled_from(["orders", *_INTERNAL]), again=st.booleans())
    def delete_topic(self, name: str, again: bool) -> None:
        topic_id = self.host.topics.topic_id(name)
        if topic_id is not None:
            self.host.topics.delete(name)
            self.host.change_topics(deleted=[(name, topic_id)])
        if again or name == "orders":
            self.host.topics.create(name, 2)
            self.host.change_topics(created=[name])

    @rule(standbys=st.integers(0, 2))
    def set_standbys(self, standbys: int) -> None:
        self.standbys = standbys
        override = GroupOverride(streams_num_standby_replicas=standbys)
        self.host.settings = self.host.coordinator.shard.settings
        self.host.send(SettingsChanged(self.host.settings, {"g": override}))

    @rule()
    def restart(self) -> None:
        self.host.restart()
        self.set_standbys(self.standbys)

    @rule()
    def delete_group(self) -> None:
        code = self.host.call(DeleteGroupsRequest(groups_names=["g"]), 2).results[0].error_code
        assert code in (ErrorCode.NONE, ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND)
        if not code:
            assert self.host.group() is None

    @rule()
    def everything_is_worked_on_in_the_end(self) -> None:
        """Whatever has happened: with topics that fit and members that answer, every task is soon where it belongs."""
        for name in _INTERNAL:
            topic_id = self.host.topics.topic_id(name)
            if topic_id is not None:
                self.host.topics.delete(name)
                self.host.change_topics(deleted=[(name, topic_id)])
        for _ in range(12):
            self.host.pass_ms(1_500)
            self.beat(sorted(_PROCESSES))
            self.make_internal_topics()
        group = self.host.group()
        assert group.state is StreamsState.STABLE, group
        count = self.host.topics.partition_count("orders")
        tasks = {(part, index) for part in ("0", "1") for index in range(count)}
        active = [
            (each.process_id, part, index) for each in self.members.values() for part, index in _flat(each.active)
        ]
        assert sorted((part, index) for _, part, index in active) == sorted(tasks)
        standby = [
            (each.process_id, part, index) for each in self.members.values() for part, index in _flat(each.standby)
        ]
        assert len(standby) == len(set(standby)) == self.standbys * count
        assert not set(standby) & set(active)
        share = -(-(len(active) + len(standby)) // len(_PROCESSES))
        assert max(len(_flat(each.active)) for each in self.members.values()) <= share + 1
        heard = [each.hosts for each in self.members.values()]
        assert all(each == heard[0] for each in heard)

    # -- what always holds

    @invariant()
    def the_log_alone_tells_the_state(self) -> None:
        live, replayed = self.host.group(), self.host.replayed_group()
        assert (live is None) == (replayed is None)
        if live is None:
            return
        for name in (
            "epoch",
            "metadata_hash",
            "assignment_epoch",
            "assignment_timestamp_ms",
            "members",
            "targets",
            "topology",
            "validated_topology_epoch",
            "assignment_configs",
            "processes",
        ):
            assert getattr(live, name) == getattr(replayed, name), name

    @invariant()
    def it_can_be_described(self) -> None:
        group = self.host.group()
        if group is not None:
            assert {member.member_id for member in described(self.host).members} == set(group.members)

    def teardown(self) -> None:
        """When all members fall silent, nobody is left in the group."""
        self.host.pass_ms(3_600_000)
        group = self.host.group()
        assert group is None or group.is_empty


def _flat(tasks: dict[str, tuple[int, ...]]) -> list[tuple[str, int]]:
    return [(part, index) for part, indexes in tasks.items() for index in indexes]


StreamsGroups.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestStreamsGroups = StreamsGroups.TestCase
