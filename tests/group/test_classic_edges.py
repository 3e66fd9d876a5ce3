"""The classic protocol where timers, retries and static members meet."""

from typing import Any

import pytest

from ottla.coordinator.contract import Loaded, TimePassed
from ottla.group.coordinator import GroupCoordinator
from ottla.group.event import SettingsChanged, TopicsChanged
from ottla.group.setting import CoordinatorSettings
from ottla.group.state.classic import ClassicState
from ottla.group.state.consumer import ConsumerGroup
from ottla.kernel.error import ErrorCode
from ottla.kernel.now import Now
from ottla.wire.api.join_group import JoinGroupRequest
from ottla.wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from tests.group.client import REBALANCE_MS, SESSION_MS, Classic, Consumer, settle, settled, stable_group
from tests.group.host import Host, Topics

NONE = ErrorCode.NONE
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS


def beat_for(host: Host, members: list[Classic], duration_ms: int) -> None:
    """Time goes by in steps of a third of a session; these members send heartbeats."""
    for _ in range(duration_ms // (SESSION_MS // 3)):
        host.pass_ms(SESSION_MS // 3)
        for member in members:
            member.heartbeat()


# -- joining


def test_a_promised_id_is_of_no_use_to_a_static_member() -> None:
    host = Host()
    promised = host.call(Classic(host).join_request(), 9).member_id
    thief = Classic(host, member_id=promised, instance_id="i")
    assert host.call(thief.join_request(), 9).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert promised in host.group().promised and not host.group().members
    honest = Classic(host, member_id=promised).join()
    settle(host, [honest])
    assert honest.member_id == promised


def test_a_join_that_the_log_refuses_leaves_the_empty_consumer_group_that_it_would_have_replaced() -> None:
    host = Host()
    (one,) = settled(host, "one")
    one.leave()
    before = host.group()
    host.refuses = ErrorCode.MESSAGE_TOO_LARGE
    assert host.call(Classic(host).join_request(), 9).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert host.group() is before and isinstance(before, ConsumerGroup)
    host.refuses = None
    settle(host, [Classic(host).join()])


@pytest.mark.parametrize("version", [0, 1])
def test_before_version_1_the_session_timeout_is_the_rebalance_timeout(version: int) -> None:
    host = Host()
    member = Classic(host)
    host.ask(member.join_request(), version)
    (joined,) = host.group().members.values()
    assert joined.session_timeout_ms == SESSION_MS
    assert joined.rebalance_timeout_ms == (REBALANCE_MS if version else SESSION_MS)


def test_a_static_member_is_named_after_its_instance_and_remembered_with_its_client() -> None:
    host = Host()
    member = Classic(host, instance_id="i", client_id="billing").join()
    host.pass_ms(7_000)
    assert member.joined().error_code == NONE
    assert member.member_id.startswith("i-")
    (known,) = host.group().members.values()
    assert (known.instance_id, known.client_id, known.client_host) == ("i", "billing", "/127.0.0.1")


def test_a_member_that_asks_again_while_the_leader_computes_gets_the_same_answer() -> None:
    host = Host()
    leader, follower = Classic(host).join(), Classic(host).join()
    host.pass_ms(7_000)
    first = [leader.joined(), follower.joined()]
    again = [leader.join().joined(), follower.join().joined()]
    assert again == first and host.group().state is ClassicState.COMPLETING_REBALANCE
    assert [len(answer.members) for answer in again] == [2, 0]
    leader.protocols = ["range", "sticky"]
    assert leader.join().waits
    assert host.group().state is ClassicState.PREPARING_REBALANCE
    settle(host, [leader, follower.join()])
    assert host.group().members[leader.member_id].protocols[1][0] == "sticky"


def test_a_member_over_a_lowered_limit_is_refused_at_its_next_join_and_gone() -> None:
    host = Host()
    first, second, third = stable_group(host, 3)
    host.send(SettingsChanged(CoordinatorSettings(group_max_size=2), {}))
    first.join(), second.join()
    refused = third.join().joined()
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert set(host.group().members) == {first.member_id, second.member_id}
    settle(host, [first, second])
    # The session that the third one had ends for nothing.
    beat_for(host, [first, second], 3 * SESSION_MS)
    assert host.group().state is ClassicState.STABLE and host.group().generation == 2


def test_a_static_leader_that_stays_away_hands_its_work_to_a_member_that_joined() -> None:
    host = Host()
    leader = Classic(host, instance_id="leader").join()
    follower = Classic(host).join()
    settle(host, [leader, follower])
    assert leader.leads
    third = Classic(host).join()
    follower.join()
    for _ in range(REBALANCE_MS // 10_000):
        host.pass_ms(10_000)
        leader.heartbeat()
    follower.joined(), third.joined()
    assert follower.leads and not third.leads
    assert set(follower.members) == {leader.member_id, follower.member_id, third.member_id}
    assert host.group().leader == follower.member_id


# -- syncing


def test_a_second_sync_takes_the_place_of_the_first() -> None:
    host = Host()
    leader, follower = Classic(host).join(), Classic(host).join()
    host.pass_ms(7_000)
    leader.joined(), follower.joined()
    first = follower.sync()
    second = follower.sync()
    assert host.answers[first].error_code == REBALANCE and host.waits(second)
    leader.sync()
    assert follower.synced().error_code == NONE


def test_a_sync_phase_that_everyone_has_ended_is_not_looked_at_again() -> None:
    host = Host()
    members = stable_group(host, 2)
    beat_for(host, members, 2 * REBALANCE_MS)
    assert host.group().state is ClassicState.STABLE and host.group().generation == 1


def test_a_static_member_that_comes_back_instead_of_syncing_does_not_break_up_a_stable_group() -> None:
    host = Host()
    leader, static = Classic(host).join(), Classic(host, instance_id="i").join()
    host.pass_ms(7_000)
    leader.joined(), static.joined()
    leader.sync()
    assert host.group().state is ClassicState.STABLE and static.member_id in host.group().unsynced
    back = Classic(host, instance_id="i").join()
    assert back.joined().error_code == NONE and back.member_id != static.member_id
    beat_for(host, [leader, back], 2 * REBALANCE_MS)
    assert host.group().state is ClassicState.STABLE and host.group().generation == 1


def test_only_those_who_did_not_sync_in_time_are_taken_out_of_a_stable_group() -> None:
    host = Host()
    leader, follower, silent = (Classic(host).join() for _ in range(3))
    host.pass_ms(7_000)
    for member in (leader, follower, silent):
        member.joined()
    follower.sync(), leader.sync()
    follower.synced()
    for _ in range(REBALANCE_MS // 10_000 + 1):
        host.pass_ms(10_000)
        for member in (leader, follower, silent):
            member.heartbeat()
    assert set(host.group().members) == {leader.member_id, follower.member_id}
    assert host.group().state is ClassicState.PREPARING_REBALANCE
    assert silent.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID and follower.heartbeat() is REBALANCE


# -- leaving


def test_a_promised_id_can_leave_and_then_holds_nothing_back() -> None:
    host = Host()
    members = stable_group(host, 1)
    promised = host.call(Classic(host).join_request(), 9).member_id
    members[0].join()
    assert members[0].waits, "the promise is waited for"
    identity = [MemberIdentity(member_id=promised)]
    answer = host.call(LeaveGroupRequest(group_id="g", members=identity), 5)
    assert [(one.member_id, one.error_code) for one in answer.members] == [(promised, NONE)]
    assert members[0].joined().error_code == NONE and host.group().promised == {}


def test_a_leaving_that_fails_disturbs_nobody() -> None:
    host = Host()
    (member,) = stable_group(host, 1, instance_id="i")
    identities = [
        MemberIdentity(member_id="ghost"),
        MemberIdentity(group_instance_id="none"),
        MemberIdentity(),
        MemberIdentity(member_id="ghost", group_instance_id="i"),
    ]
    before = len(host.log)
    answer = host.call(LeaveGroupRequest(group_id="g", members=identities), 5)
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [(one.member_id, one.group_instance_id, one.error_code) for one in answer.members] == [
        ("ghost", None, unknown),
        ("", "none", unknown),
        ("", None, unknown),
        ("ghost", "i", ErrorCode.FENCED_INSTANCE_ID),
    ]
    assert host.group().state is ClassicState.STABLE and len(host.log) == before
    assert member.heartbeat() is NONE
    assert host.call(LeaveGroupRequest(group_id="g", member_id="ghost"), 2).error_code == unknown
    assert host.call(LeaveGroupRequest(group_id="none", member_id="ghost"), 2).error_code == unknown
    assert host.call(LeaveGroupRequest(group_id="", member_id="m"), 2).error_code == ErrorCode.INVALID_GROUP_ID


def test_a_member_that_leaves_while_the_others_join_ends_the_wait_for_it() -> None:
    host = Host()
    first, second = stable_group(host, 2)
    third = Classic(host).join()
    first.join()
    assert first.waits and third.waits
    second.leave()
    assert first.joined().generation_id == third.joined().generation_id == 2
    assert set(first.members) == {first.member_id, third.member_id}


# -- the coordinator


def test_time_that_passes_for_nothing_has_no_effect() -> None:
    host = Host()
    (member,) = stable_group(host, 1)
    log, deadline_ms = len(host.log), host.coordinator.deadline_ms()
    assert host.coordinator.step(TimePassed(), Now(host.now_ms, host.now_ms)) == []
    assert (len(host.log), host.coordinator.deadline_ms()) == (log, deadline_ms)
    assert member.heartbeat() is NONE


def test_topics_that_change_while_the_log_is_loaded_are_known_afterwards() -> None:
    host = Host()
    (one,) = settled(host, "one")
    loading: GroupCoordinator = host.replayed()
    assert loading.deadline_ms() is None, "it does not lead yet"
    host.topics.create("more", 1)
    topics = Topics({"orders": 6, "clicks": 2}, version=5)
    gone = host.topics.topic_id("clicks")
    assert gone is not None
    commits: Any = TopicsChanged(topics, created=["more"], deleted=[("clicks", gone)])
    assert loading.step(commits, Now(0, 0)) == []
    host.topics, host.coordinator = topics, loading
    host.send(Loaded())
    for _ in range(3):
        host.pass_ms(1_000)
        assert one.beat().error_code == NONE
    assert one.partitions() == [0, 1, 2, 3, 4, 5]


def test_a_deadline_of_a_group_that_was_replaced_is_passed_over() -> None:
    host = Host()
    promised = host.call(Classic(host).join_request(), 9).member_id
    assert promised in host.group().promised
    new = Consumer(host, "new")
    assert new.join().error_code == NONE
    for _ in range(SESSION_MS // 10_000 + 1):
        host.pass_ms(10_000)
        new.beat()
    assert set(host.group().members) == {"new"}
    assert host.coordinator.deadline_ms() is not None


def test_a_join_to_a_group_without_a_name_or_with_a_session_out_of_bounds_writes_nothing() -> None:
    settings = CoordinatorSettings(group_min_session_timeout_ms=6_000, group_max_session_timeout_ms=30_000)
    host = Host(settings)

    def joined(session_ms: int, group_id: str = "g") -> ErrorCode:
        request: JoinGroupRequest = Classic(host, group_id=group_id).join_request()
        request.session_timeout_ms = session_ms
        return ErrorCode(host.call(request, 9).error_code)

    assert joined(10_000, "") is ErrorCode.INVALID_GROUP_ID
    assert joined(5_999) is joined(30_001) is ErrorCode.INVALID_SESSION_TIMEOUT
    assert host.log == []
    assert joined(6_000) is joined(30_000) is ErrorCode.MEMBER_ID_REQUIRED
