"""The classic protocol: joins, generations, syncs, sessions, static members."""

from typing import Any

import pytest

from ottla.group.setting import CoordinatorSettings
from ottla.group.state.classic import ClassicState
from ottla.kernel.error import ErrorCode
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.join_group import JoinGroupRequest
from ottla.wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.api.sync_group import SyncGroupRequest
from tests.group.client import REBALANCE_MS, SESSION_MS, Classic, settle, stable_group
from tests.group.host import Host


def test_a_dynamic_member_is_given_an_id_and_must_join_again_with_it() -> None:
    host = Host()
    member = Classic(host, client_id="billing")
    first = host.call(member.join_request(), 9, "billing")
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert first.member_id.startswith("billing-") and len(first.member_id) == len("billing-") + 36
    assert host.group().state is ClassicState.EMPTY and first.member_id in host.group().promised


def test_before_version_4_a_member_is_let_in_at_its_first_join() -> None:
    host = Host()
    member = Classic(host, version=3)
    ticket = host.ask(member.join_request(), 3)
    assert host.waits(ticket) and len(host.group().members) == 1


def test_the_first_rebalance_waits_the_initial_delay_and_then_names_a_leader_who_alone_sees_the_members() -> None:
    host = Host(CoordinatorSettings(group_initial_rebalance_delay_ms=3_000))
    first, second = Classic(host).join(), Classic(host).join()
    host.pass_ms(2_999)
    assert first.waits and second.waits
    host.pass_ms(3_001)
    assert first.joined().generation_id == second.joined().generation_id == 1
    assert first.leads and not second.leads
    assert first.members == [first.member_id, second.member_id] and second.members == []
    assert first.joined().protocol_type == "consumer" and first.joined().protocol_name == "range"


def test_each_newcomer_prolongs_the_first_rebalance_but_not_past_the_rebalance_timeout() -> None:
    host = Host(CoordinatorSettings(group_initial_rebalance_delay_ms=3_000))
    first = Classic(host).join()
    started_ms = host.now_ms
    for _ in range(40):
        host.pass_ms(2_000)
        if not first.waits:
            break
        Classic(host).join()
    assert host.now_ms - started_ms > 6_000
    assert host.now_ms - started_ms <= REBALANCE_MS + 3_000


def test_without_an_initial_delay_one_member_starts_at_once() -> None:
    host = Host(CoordinatorSettings(group_initial_rebalance_delay_ms=0))
    member = Classic(host).join()
    host.pass_ms(0)
    assert member.joined().generation_id == 1


def test_syncs_wait_for_the_leader_and_then_each_gets_its_part() -> None:
    host = Host()
    leader, follower = Classic(host).join(), Classic(host).join()
    host.pass_ms(6_000)
    leader.joined(), follower.joined()
    follower.sync()
    assert follower.waits
    leader.sync({leader.member_id: {"orders": [0, 1]}, follower.member_id: {"orders": [2, 3]}})
    assert leader.synced().protocol_name == "range" and leader.owned == {"orders": [0, 1]}
    assert follower.synced().error_code == ErrorCode.NONE and follower.owned == {"orders": [2, 3]}
    assert host.group().state is ClassicState.STABLE


def test_a_member_that_the_leader_forgets_gets_an_empty_assignment() -> None:
    host = Host()
    leader, follower = Classic(host).join(), Classic(host).join()
    host.pass_ms(6_000)
    leader.joined(), follower.joined()
    follower.sync()
    leader.sync({leader.member_id: {"orders": [0, 1, 2, 3]}})
    assert follower.synced().assignment == b""


def test_a_stable_group_answers_a_late_or_repeated_sync_from_memory() -> None:
    host = Host()
    _leader, follower = stable_group(host, 2)
    before = dict(follower.owned)
    follower.sync()
    assert follower.synced().error_code == ErrorCode.NONE and follower.owned == before


def test_a_newcomer_makes_a_stable_group_rebalance_and_heartbeats_say_so() -> None:
    host = Host()
    first, second = stable_group(host, 2)
    third = Classic(host).join()
    assert third.waits
    assert first.heartbeat() is second.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    first.join(), second.join()
    settle(host, [first, second, third])
    assert {first.generation, second.generation, third.generation} == {2}


def test_the_rebalance_goes_on_at_its_timeout_without_dynamic_members_that_stay_away() -> None:
    host = Host()
    first, second = stable_group(host, 2)
    third = Classic(host).join()
    first.join()
    for _ in range(6):
        host.pass_ms(REBALANCE_MS // 6 - 1)
        second.heartbeat()
    assert third.waits
    host.pass_ms(10)
    assert third.joined().error_code == ErrorCode.NONE
    assert second.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_leader_that_stays_away_loses_its_office() -> None:
    host = Host()
    _leader, follower = stable_group(host, 2)
    third = Classic(host).join()
    follower.join()
    host.pass_ms(SESSION_MS + 1)
    follower.joined(), third.joined()
    assert follower.leads and set(follower.members) == {follower.member_id, third.member_id}


def test_a_silent_member_is_taken_out_and_the_others_rebalance() -> None:
    host = Host()
    first, second = stable_group(host, 2)
    for _ in range(4):
        host.pass_ms(SESSION_MS // 3)
        first.heartbeat()
    assert second.member_id not in host.group().members
    assert first.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert second.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_waiting_for_a_join_counts_as_a_sign_of_life() -> None:
    host = Host()
    first, second = stable_group(host, 2)
    first.join()
    for _ in range(3):
        host.pass_ms(SESSION_MS - 1_000 if _ == 0 else 10_000)
        second.heartbeat()
    assert first.waits and first.member_id in host.group().members


def test_a_newcomer_that_waits_too_long_for_its_first_answer_is_taken_out() -> None:
    host = Host()
    member, other = (Classic(host, instance_id=name).join() for name in ("a", "b"))
    settle(host, [member, other])
    request = Classic(host).join_request()
    request.rebalance_timeout_ms = 600_000
    ticket = host.ask(request, 3)
    for _ in range(16):
        host.pass_ms(20_000)
        member.heartbeat(), other.heartbeat()
    assert host.answers[ticket].error_code == ErrorCode.UNKNOWN_MEMBER_ID and host.answers[ticket].member_id == ""


def test_a_promised_id_that_is_not_used_is_forgotten() -> None:
    host = Host()
    promised = host.call(Classic(host).join_request(), 9).member_id
    host.pass_ms(SESSION_MS + 1)
    late = Classic(host, member_id=promised)
    assert host.call(late.join_request(), 9).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_outstanding_promise_holds_the_join_phase_back() -> None:
    host = Host()
    first, second = stable_group(host, 2)
    host.call(Classic(host).join_request(), 9)
    first.join(), second.join()
    assert first.waits and second.waits
    host.pass_ms(SESSION_MS + 1)
    assert not any(member.waits for member in (first, second))


def test_members_that_do_not_sync_are_taken_out_at_the_rebalance_timeout() -> None:
    host = Host()
    leader, follower = Classic(host).join(), Classic(host).join()
    host.pass_ms(6_000)
    leader.joined(), follower.joined()
    leader.sync()
    assert leader.synced().error_code == ErrorCode.NONE
    for _ in range(6):
        host.pass_ms(10_000)
        leader.heartbeat(), follower.heartbeat()
    assert follower.member_id not in host.group().members
    assert leader.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_follower_that_joins_again_unchanged_is_told_the_present_generation() -> None:
    host = Host()
    _leader, follower = stable_group(host, 2)
    follower.owned = {}
    follower.join()
    assert follower.joined().generation_id == 1 and host.group().state is ClassicState.STABLE


def test_the_leaders_join_starts_a_rebalance() -> None:
    host = Host()
    leader, follower = stable_group(host, 2)
    leader.join()
    assert leader.waits and follower.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_follower_that_changes_its_metadata_starts_a_rebalance() -> None:
    host = Host()
    _leader, follower = stable_group(host, 2)
    follower.topics = ["orders", "clicks"]
    follower.join()
    assert follower.waits and host.group().state is ClassicState.PREPARING_REBALANCE


def test_a_join_while_the_leader_computes_sends_the_waiting_syncs_back() -> None:
    host = Host()
    leader, follower = Classic(host).join(), Classic(host).join()
    host.pass_ms(6_000)
    leader.joined(), follower.joined()
    follower.sync()
    third = Classic(host).join()
    assert third.waits
    assert follower.synced().error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_leaving_member_makes_room_at_once() -> None:
    host = Host()
    first, second = stable_group(host, 2)
    answer = second.leave()
    assert answer.error_code == ErrorCode.NONE and answer.members[0].error_code == ErrorCode.NONE
    first.join()
    assert first.joined().generation_id == 2 and first.members == [first.member_id]


def test_the_last_member_that_leaves_an_empty_group_behind() -> None:
    host = Host()
    (member,) = stable_group(host, 1)
    member.leave()
    assert host.group().state is ClassicState.EMPTY and host.group().generation == 2
    assert host.replayed_group().generation == 2


def test_a_member_may_leave_with_the_old_request_of_one_member() -> None:
    host = Host()
    _first, second = stable_group(host, 2)
    request = LeaveGroupRequest(group_id="g", member_id=second.member_id)
    assert host.call(request, 2).error_code == ErrorCode.NONE
    assert host.call(request, 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_ends_a_wait_for_a_join_or_a_sync() -> None:
    host = Host()
    leader, follower = Classic(host).join(), Classic(host).join()
    follower_join = follower.ticket
    follower.leave()
    assert host.answers[follower_join].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    host.pass_ms(6_000)
    other = Classic(host).join()
    leader.joined()
    leader.join()
    leader.joined(), other.joined()
    other.sync()
    other_sync = other.ticket
    other.leave()
    assert host.answers[other_sync].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_protocol_with_most_votes_among_the_common_ones_is_chosen() -> None:
    host = Host()
    members = [
        Classic(host, protocols=["sticky", "range"]).join(),
        Classic(host, protocols=["range", "sticky"]).join(),
        Classic(host, protocols=["range", "sticky", "own"]).join(),
    ]
    host.pass_ms(6_000)
    assert {member.joined().protocol_name for member in members} == {"range"}


def test_a_member_with_no_common_protocol_is_kept_out() -> None:
    host = Host()
    stable_group(host, 1)
    answer = host.call(Classic(host, protocols=["sticky"]).join_request(), 9)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_member_of_another_protocol_type_is_kept_out() -> None:
    host = Host()
    stable_group(host, 1)
    request = Classic(host).join_request()
    request.protocol_type = "connect"
    assert host.call(request, 9).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_group_that_is_full_takes_nobody_in() -> None:
    host = Host(CoordinatorSettings(group_max_size=2))
    stable_group(host, 2)
    answer = host.call(Classic(host).join_request(), 9)
    assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED and answer.member_id == ""


def test_bad_joins_get_kafkas_errors() -> None:
    host = Host()
    request = Classic(host).join_request()
    request.group_id = ""
    assert host.call(request, 9).error_code == ErrorCode.INVALID_GROUP_ID
    request = Classic(host).join_request()
    request.session_timeout_ms = 5_999
    assert host.call(request, 9).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    request.session_timeout_ms = 1_800_001
    assert host.call(request, 9).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    ghost = Classic(host, member_id="ghost")
    assert host.call(ghost.join_request(), 9).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert host.group() is None


def test_a_group_whose_first_member_is_refused_for_its_protocol_is_there_and_empty() -> None:
    host = Host()
    bare = JoinGroupRequest(group_id="g", session_timeout_ms=10_000, protocol_type="consumer")
    assert host.call(bare, 9).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    request = Classic(host, group_id="h").join_request()
    request.protocol_type = ""
    assert host.call(request, 9).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    host.restart()
    assert [host.group(name).state for name in "gh"] == [ClassicState.EMPTY] * 2


def test_a_ghost_cannot_join_an_empty_group_under_an_old_id() -> None:
    host = Host()
    (member,) = stable_group(host, 1)
    member.leave()
    assert host.call(member.join_request(), 9).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_bad_syncs_get_kafkas_errors() -> None:
    host = Host()

    def sync(**values: Any) -> ErrorCode:
        fields: dict[str, Any] = {"group_id": "g", "protocol_type": "consumer", "protocol_name": "range", **values}
        return ErrorCode(host.call(SyncGroupRequest(**fields), 5).error_code)

    assert sync(group_id="") is ErrorCode.INVALID_GROUP_ID
    assert sync(member_id="x") is ErrorCode.UNKNOWN_MEMBER_ID
    leader, follower = stable_group(host, 2)
    known: dict[str, Any] = {"member_id": follower.member_id, "generation_id": 1}
    assert sync(**known) is ErrorCode.NONE
    assert sync(**known, protocol_name=None) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sync(**known, protocol_name="sticky") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sync(**known, protocol_type="connect") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sync(member_id=follower.member_id, generation_id=0) is ErrorCode.ILLEGAL_GENERATION
    assert sync(member_id="x", generation_id=1) is ErrorCode.UNKNOWN_MEMBER_ID
    leader.join()
    assert sync(**known) is ErrorCode.REBALANCE_IN_PROGRESS


def test_bad_heartbeats_get_kafkas_errors() -> None:
    host = Host()

    def beat(group_id: str, member_id: str, generation: int) -> ErrorCode:
        request = HeartbeatRequest(group_id=group_id, member_id=member_id, generation_id=generation)
        return ErrorCode(host.call(request, 4).error_code)

    assert beat("", "x", 1) is ErrorCode.INVALID_GROUP_ID
    assert beat("none", "x", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    (member,) = stable_group(host, 1)
    assert beat("g", member.member_id, 1) is ErrorCode.NONE
    assert beat("g", member.member_id, 2) is ErrorCode.ILLEGAL_GENERATION
    assert beat("g", "x", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_says_for_each_member_how_it_went() -> None:
    host = Host()
    _first, second = stable_group(host, 2)
    request = LeaveGroupRequest(
        group_id="g", members=[MemberIdentity(member_id=second.member_id), MemberIdentity(member_id="ghost")]
    )
    answer = host.call(request, 5)
    assert [one.error_code for one in answer.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    missing = host.call(LeaveGroupRequest(group_id="none", members=[MemberIdentity(member_id="x")]), 5)
    assert missing.error_code == ErrorCode.NONE
    assert missing.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert host.call(LeaveGroupRequest(group_id=""), 5).error_code == ErrorCode.INVALID_GROUP_ID


def test_a_stable_group_survives_a_restart_of_the_coordinator() -> None:
    host = Host()
    first, second = stable_group(host, 2)
    host.restart()
    assert first.heartbeat() is second.heartbeat() is ErrorCode.NONE
    before = dict(second.owned)
    second.sync()
    second.synced()
    assert second.owned == before


def test_who_waits_when_the_coordinator_resigns_is_told_so() -> None:
    host = Host()
    leader, follower = Classic(host).join(), Classic(host).join()
    host.restart()
    assert leader.joined().error_code == follower.joined().error_code == ErrorCode.NOT_COORDINATOR
    members = stable_group(host, 2)
    third = Classic(host).join()
    members[0].join(), members[1].join()
    members[0].joined(), members[1].joined(), third.joined()
    third.sync()
    host.restart()
    assert third.synced().error_code == ErrorCode.NOT_COORDINATOR


def test_after_a_restart_members_have_their_whole_session_again() -> None:
    host = Host()
    (member,) = stable_group(host, 1)
    host.pass_ms(SESSION_MS - 1)
    host.restart()
    host.pass_ms(SESSION_MS - 1)
    assert member.heartbeat() is ErrorCode.NONE


def test_a_group_over_a_lowered_limit_rebalances_when_it_is_loaded() -> None:
    host = Host()
    members = stable_group(host, 3)
    host.settings = CoordinatorSettings(group_max_size=2)
    host.restart()
    assert members[0].heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    for member in members:
        member.join()
    assert members[2].joined().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize(
    ("name", "version"), [("client_id", 3), ("client_id", 9), ("instance_id", 5), ("instance_id", 9)]
)
def test_a_name_that_leaves_no_room_for_the_rest_of_a_member_id_is_refused(name: str, version: int) -> None:
    host = Host()
    # The coordinator appends a dash and a UUID; a string of the log has at most 32,767 bytes.
    longest = 32_767 - 37
    options: dict[str, Any] = {"version": version, name: "é" + "x" * longest}
    assert Classic(host, **options).join().joined().error_code == ErrorCode.INVALID_REQUEST
    assert host.group() is None
    options[name] = options[name][:-2]
    settle(host, [Classic(host, **options).join()])
