"""Times and intervals of groups of each kind: the broker's, a group's own, and each of them to the millisecond."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.coordinator.contract import TimePassed
from ottla.group.event import SettingsChanged
from ottla.group.setting import CoordinatorSettings, GroupOverride
from ottla.group.state.classic import ClassicState
from ottla.kernel.error import ErrorCode
from ottla.wire.api.delete_groups import DeleteGroupsRequest
from tests.group.client import SESSION_MS, Classic, Consumer, commit, commit_request, fetched, settled, transactional
from tests.group.host import Host
from tests.group.streams import Streamer, rounds
from tests.group.test_share_group import ORDERS, Sharer

NONE = ErrorCode.NONE
MINUTE_MS = 60_000
#: The times of a share group's and a streams group's members that the broker has for all of them.
BROKER = CoordinatorSettings(
    group_share_session_timeout_ms=50_000,
    group_share_heartbeat_interval_ms=4_000,
    group_share_assignment_interval_ms=9_000,
    group_streams_session_timeout_ms=50_000,
    group_streams_heartbeat_interval_ms=4_000,
    group_streams_assignment_interval_ms=9_000,
    group_streams_initial_rebalance_delay_ms=0,
)
OWN = GroupOverride(
    share_session_timeout_ms=10_000,
    share_heartbeat_interval_ms=3_000,
    share_assignment_interval_ms=2_000,
    streams_session_timeout_ms=10_000,
    streams_heartbeat_interval_ms=3_000,
    streams_assignment_interval_ms=2_000,
    streams_initial_rebalance_delay_ms=5_000,
)


def with_own(host: Host) -> Host:
    """The group g has settings of its own; the group h has not."""
    host.send(SettingsChanged(host.settings, {"g": OWN}))
    return host


# -- sessions and heartbeats


@pytest.mark.parametrize("make", [Sharer, Streamer])
@pytest.mark.parametrize(("group_id", "session_ms", "interval_ms"), [("g", 10_000, 3_000), ("h", 50_000, 4_000)])
def test_a_group_has_its_own_times_or_the_brokers(
    make: Callable[..., Any], group_id: str, session_ms: int, interval_ms: int
) -> None:
    host = with_own(Host(BROKER))
    more = {"topics": ["orders"]} if make is Sharer else {}
    member = make(host, "one", group_id=group_id, **more)
    answer = member.beat() if make is Sharer else member.join()
    assert (answer.error_code, answer.heartbeat_interval_ms) == (NONE, interval_ms)
    host.pass_ms(session_ms - 1)
    assert member.beat().error_code == NONE
    host.pass_ms(session_ms - 1)
    assert set(host.group(group_id).members) == {"one"}
    host.pass_ms(1)
    assert host.group(group_id).members == {}
    assert host.replayed_group(group_id).members == {}


@pytest.mark.parametrize("make", [Sharer, Streamer])
def test_a_new_leader_gives_members_their_groups_own_session(make: Callable[..., Any]) -> None:
    host = with_own(Host(BROKER))
    more = {"topics": ["orders"]} if make is Sharer else {}
    member = make(host, "one", **more)
    assert (member.beat() if make is Sharer else member.join()).error_code == NONE
    host.coordinator = host.replayed()
    host.send(SettingsChanged(host.settings, {"g": OWN}))
    host.restart()
    host.send(SettingsChanged(host.settings, {"g": OWN}))
    # The overrides came after the sessions had begun: these are the broker's.
    host.pass_ms(49_999)
    assert set(host.group().members) == {"one"}
    host.pass_ms(1)
    assert host.group().members == {}


def test_a_streams_group_gathers_for_its_own_time() -> None:
    host = with_own(Host(BROKER))
    for name in ("one", "two"):
        member = Streamer(host, name)
        member.join()
        assert not member.active
    host.pass_ms(4_999)
    assert not host.group().targets
    host.pass_ms(1)
    dealt = [target.active["0"] for target in host.replayed_group().targets.values()]
    assert sorted(dealt[0] + dealt[1]) == [0, 1, 2, 3]
    other = Streamer(host, "one", group_id="h")
    other.join()
    assert other.active == {"0": (0, 1, 2, 3)}, "the broker has no such delay"


@pytest.mark.parametrize(("group_id", "interval_ms"), [("g", 2_000), ("h", 9_000)])
def test_targets_of_a_share_group_have_its_own_interval(group_id: str, interval_ms: int) -> None:
    host = with_own(Host(BROKER))
    members = [Sharer(host, name, ["orders"], group_id) for name in ("one", "two", "three")]
    members[0].beat()
    members[1].beat()
    computed = host.group(group_id).assignment_epoch
    members[2].beat()
    assert host.group(group_id).epoch > host.group(group_id).assignment_epoch == computed
    assert members[2].assigned == {}
    host.pass_ms(interval_ms - 1)
    members[2].beat()
    assert host.group(group_id).assignment_epoch == computed
    host.pass_ms(1)
    members[2].beat()
    assert host.group(group_id).assignment_epoch == host.group(group_id).epoch
    assert len(members[2].assigned[ORDERS]) >= 1


@pytest.mark.parametrize(("group_id", "interval_ms"), [("g", 2_000), ("h", 9_000)])
def test_targets_of_a_streams_group_have_its_own_interval(group_id: str, interval_ms: int) -> None:
    host = Host(BROKER)
    one, two = (Streamer(host, name, group_id=group_id) for name in ("one", "two"))
    one.join()
    with_own(host)
    two.join()
    computed = host.group(group_id).assignment_epoch
    assert host.group(group_id).epoch > computed
    host.pass_ms(interval_ms - 1)
    two.beat()
    assert host.group(group_id).assignment_epoch == computed
    host.pass_ms(1)
    two.beat()
    assert host.group(group_id).assignment_epoch == host.group(group_id).epoch
    rounds([one, two])
    assert sorted(one.active["0"] + two.active["0"]) == [0, 1, 2, 3]


def test_a_clock_that_is_set_back_does_not_hold_targets_up() -> None:
    host = Host(BROKER)
    (first,) = settled(host, "a")
    group = host.group()
    group.assignment_timestamp_ms = host.now_ms + 3_600_000
    second = Consumer(host, "b")
    second.join()
    assert host.group().assignment_epoch == host.group().epoch > first.epoch


# -- the first rebalance of a classic group


@pytest.mark.parametrize(
    ("rebalance_ms", "ends_ms"), [(10_000, 10_000), (3_000, 3_000), (2_000, 3_000), (60_000, 60_000)]
)
def test_newcomers_prolong_the_first_rebalance_up_to_the_rebalance_timeout(rebalance_ms: int, ends_ms: int) -> None:
    host = Host(CoordinatorSettings(group_initial_rebalance_delay_ms=3_000))

    def join() -> Classic:
        member = Classic(host, version=3)
        request = member.join_request()
        request.rebalance_timeout_ms = rebalance_ms
        member.ticket = host.ask(request, 3)
        return member

    first = join()
    for _ in range(ends_ms // 1_000 - 1):
        host.pass_ms(1_000)
        assert first.waits
        join()
    host.pass_ms(999)
    assert first.waits
    host.pass_ms(1)
    assert first.joined().error_code == NONE
    assert host.group().state is ClassicState.COMPLETING_REBALANCE


def test_a_round_in_which_nobody_joins_ends_the_first_rebalance() -> None:
    host = Host(CoordinatorSettings(group_initial_rebalance_delay_ms=3_000))
    first = Classic(host, version=3)
    first.ticket = host.ask(first.join_request(), 3)
    host.pass_ms(1_000)
    Classic(host, version=3).join()
    host.pass_ms(2_000)
    assert first.waits, "someone joined in this round"
    host.pass_ms(2_999)
    assert first.waits
    host.pass_ms(1)
    assert not first.waits


def test_a_session_begins_again_when_the_join_is_answered() -> None:
    host = Host()
    member = Classic(host).join()
    host.pass_ms(6_000)
    answered_ms = host.now_ms
    assert member.joined().error_code == NONE
    host.pass_ms(SESSION_MS - 3_001)
    assert set(host.group().members) == {member.member_id}, host.now_ms - answered_ms
    member.sync()
    host.pass_ms(SESSION_MS - 1)
    assert member.heartbeat() is NONE
    host.pass_ms(SESSION_MS)
    assert member.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


# -- expiry


@pytest.mark.parametrize(("retention_minutes", "gone"), [(1, True), (2, False)])
def test_an_offset_expires_when_its_time_is_over_to_the_millisecond(retention_minutes: int, gone: bool) -> None:
    settings = CoordinatorSettings(
        offsets_retention_minutes=retention_minutes, offsets_retention_check_interval_ms=MINUTE_MS
    )
    host = Host(settings)
    commit(host, {0: 1})
    host.pass_ms(MINUTE_MS - 1)
    assert host.group() is not None
    host.pass_ms(1)
    assert (host.group() is None) is gone


@pytest.mark.parametrize(("retention_ms", "gone"), [(MINUTE_MS, True), (MINUTE_MS + 1, False), (MINUTE_MS - 1, True)])
def test_an_offset_of_an_old_client_expires_when_it_said(retention_ms: int, gone: bool) -> None:
    host = Host(CoordinatorSettings(offsets_retention_check_interval_ms=MINUTE_MS))
    request = commit_request("g", {"orders": {0: 1}})
    request.retention_time_ms = retention_ms
    host.call(request, 4)
    host.pass_ms(MINUTE_MS)
    assert (host.group() is None) is gone


def test_a_check_of_many_groups_takes_a_step_for_some_of_them_and_is_followed_by_the_next_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ottla.group.coordinator._EXPIRY_OFFSETS", 6)
    host = Host(CoordinatorSettings(offsets_retention_minutes=1, offsets_retention_check_interval_ms=MINUTE_MS))
    names = [f"g{number}" for number in range(5)]
    for name in names:
        host.call(commit_request(name, {"orders": {0: 1, 1: 1}}), 9)
    host.now_ms += MINUTE_MS
    left = []
    for _ in range(2):
        # Two offsets and the group itself are three to look at.
        host.send(TimePassed())
        left.append(sorted(host.coordinator.shard.groups))
        assert host.coordinator.deadline_ms() == host.now_ms, "it goes on at once, but not before others had their turn"
    assert left == [names[2:], names[4:]]
    host.call(commit_request("late", {"orders": {0: 1}}), 9)
    # What was looked at last goes with the step even if it is gone by then.
    host.call(DeleteGroupsRequest(groups_names=["g4"]), 2)
    host.send(TimePassed())
    assert list(host.coordinator.shard.groups) == ["late"]
    assert host.coordinator.deadline_ms() == host.now_ms + MINUTE_MS
    host.pass_ms(MINUTE_MS)
    assert not host.coordinator.shard.groups


@pytest.mark.parametrize("refuses", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.RECORD_LIST_TOO_LARGE])
def test_offsets_whose_deletion_the_log_refuses_wait_for_the_next_check_and_hold_up_no_others(
    refuses: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.group.coordinator._EXPIRY_OFFSETS", 1)
    host = Host(CoordinatorSettings(offsets_retention_minutes=1, offsets_retention_check_interval_ms=MINUTE_MS))
    for name in ("a", "b"):
        host.call(commit_request(name, {"orders": {0: 1}}), 9)
    host.now_ms += MINUTE_MS
    host.refuses = refuses
    host.send(TimePassed())
    host.refuses = None
    host.send(TimePassed())
    assert list(host.coordinator.shard.groups) == ["a"]
    assert host.coordinator.deadline_ms() == host.now_ms + MINUTE_MS
    host.pass_ms(MINUTE_MS)
    assert not host.coordinator.shard.groups


def test_a_group_whose_last_offset_expires_while_someone_is_about_to_join_stays() -> None:
    host = Host(CoordinatorSettings(offsets_retention_minutes=1, offsets_retention_check_interval_ms=MINUTE_MS))
    host.pass_ms(50_000)
    assert commit(host, {0: 1}) == [NONE]
    host.pass_ms(69_000)
    promised = host.call(Classic(host).join_request(), 9).member_id
    host.pass_ms(1_000)
    assert promised in host.group().promised, "it has its session to come back in"
    assert fetched(host, "g", {"orders": [0]}) == {("orders", 0): (-1, NONE)}
    host.pass_ms(2 * MINUTE_MS)
    assert host.group() is None


def test_pending_offsets_of_a_deleted_topic_go_and_do_not_come_back() -> None:
    host = Host()
    commit(host, {0: 1}, topic="clicks")
    assert transactional(host, {0: 5, 1: 6}, 7) == [NONE, NONE]
    topic_id = host.topics.topic_id("orders")
    assert topic_id is not None
    host.topics.delete("orders")
    host.change_topics(deleted=[("orders", topic_id)])
    host.topics.create("orders", 4)
    assert fetched(host, "g", {"orders": [0]}, stable=True) == {("orders", 0): (-1, NONE)}
    host.end_transaction(7, committed=True)
    asked = {"orders": [0, 1], "clicks": [0]}
    assert fetched(host, "g", asked) == {("orders", 0): (-1, NONE), ("orders", 1): (-1, NONE), ("clicks", 0): (1, NONE)}


def test_a_group_that_is_named_twice_is_deleted_once() -> None:
    host = Host()
    commit(host, {0: 1})
    answer = host.call(DeleteGroupsRequest(groups_names=["g", "none", "g"]), 2)
    assert [(one.group_id, one.error_code) for one in answer.results] == [
        ("g", NONE),
        ("none", ErrorCode.GROUP_ID_NOT_FOUND),
    ]


# -- expressions


def test_an_expression_stays_as_long_as_a_member_uses_it() -> None:
    host = Host()
    members = [Consumer(host, name, topics=None, regex="or.*") for name in ("a", "b")]
    for member in members:
        assert member.join().error_code == NONE
    members[0].leave()
    assert set(host.replayed_group().resolved) == {"or.*"}
    members[1].leave()
    assert host.replayed_group().resolved == {}


def test_an_expression_is_looked_at_again_after_its_refresh_interval_and_when_the_clock_went_back() -> None:
    host = Host(CoordinatorSettings(group_consumer_regex_refresh_interval_ms=60_000))
    member = Consumer(host, "a", topics=None, regex="or.*")
    member.join()

    def resolved_ms() -> int:
        return int(host.group().resolved["or.*"].timestamp_ms)

    began_ms = host.now_ms
    for _ in range(2):
        host.pass_ms(30_000)
        member.beat()
    assert resolved_ms() == began_ms
    host.pass_ms(1)
    member.beat()
    assert resolved_ms() == host.now_ms == began_ms + 60_001
    resolved = host.group().resolved["or.*"]
    host.group().resolved["or.*"] = resolved._replace(timestamp_ms=host.now_ms + 5_000)
    member.beat()
    assert resolved_ms() == host.now_ms


def test_an_initial_delay_does_not_shorten_the_interval() -> None:
    settings = CoordinatorSettings(
        group_streams_initial_rebalance_delay_ms=1_000, group_streams_assignment_interval_ms=10_000
    )
    host = Host(settings)
    one = Streamer(host, "one")
    one.join()
    one.beat()
    host.pass_ms(1_000)
    assert host.group().assignment_epoch == host.group().epoch
    one.leave()
    two = Streamer(host, "two")
    two.join()
    assert two.statuses == [(5, "Assignment delayed due to the configured initial rebalance delay.")]
    host.pass_ms(9_000)
    two.beat()
    assert two.statuses == [(5, "Assignment delayed due to the configured assignment interval.")]
    host.pass_ms(1_000)
    two.beat()
    assert two.statuses == [] and two.active
