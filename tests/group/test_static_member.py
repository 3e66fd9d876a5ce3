"""Static members of classic groups (KIP-345): they come back under another id and nobody rebalances."""

from ottla.group.state.classic import ClassicState
from ottla.kernel.error import ErrorCode
from ottla.wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from tests.group.client import REBALANCE_MS, SESSION_MS, Classic, settle, stable_group
from tests.group.host import Host


def test_a_static_member_that_comes_back_takes_its_old_part_without_a_rebalance() -> None:
    host = Host()
    members = [Classic(host, instance_id=name).join() for name in ("a", "b")]
    settle(host, members)
    old = members[1]
    again = Classic(host, instance_id="b").join()
    answer = again.joined()
    assert answer.error_code == ErrorCode.NONE and answer.generation_id == 1
    assert again.member_id != old.member_id and host.group().state is ClassicState.STABLE
    again.sync()
    again.synced()
    assert again.owned == old.owned
    assert old.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    assert members[0].heartbeat() is ErrorCode.NONE


def test_a_static_leader_that_comes_back_is_told_to_keep_the_assignment() -> None:
    host = Host()
    members = [Classic(host, instance_id=name).join() for name in ("a", "b")]
    settle(host, members)
    again = Classic(host, instance_id="a").join()
    answer = again.joined()
    assert answer.skip_assignment and again.leads and len(again.members) == 2


def test_before_version_9_a_static_leader_that_comes_back_takes_itself_for_a_follower() -> None:
    host = Host()
    members = [Classic(host, instance_id=name).join() for name in ("a", "b")]
    settle(host, members)
    again = Classic(host, instance_id="a", version=8).join()
    answer = again.joined()
    assert answer.leader == members[0].member_id != again.member_id
    assert not answer.skip_assignment and answer.members == []


def test_a_static_member_that_comes_back_with_another_protocol_starts_a_rebalance() -> None:
    host = Host()
    members = [Classic(host, instance_id=name, protocols=["range", "sticky"]).join() for name in ("a", "b")]
    settle(host, members)
    again = Classic(host, instance_id="b", protocols=["sticky"]).join()
    assert again.waits and host.group().state is ClassicState.PREPARING_REBALANCE


def test_a_static_member_that_comes_back_while_it_waits_fences_its_old_self() -> None:
    host = Host()
    first, second = (Classic(host, instance_id=name).join() for name in ("a", "b"))
    again = Classic(host, instance_id="b").join()
    assert host.answers[second.ticket].error_code == ErrorCode.FENCED_INSTANCE_ID
    settle(host, [first, again])


def test_a_new_static_member_that_comes_back_while_it_waits_is_waited_for() -> None:
    """Its join waits for longer than its session lasts, and its client sends no heartbeat meanwhile."""
    host = Host()
    (first,) = stable_group(host, 1)
    Classic(host, instance_id="b").join()
    again = Classic(host, instance_id="b").join()
    for _ in range(4):
        host.pass_ms(SESSION_MS // 3)
        first.heartbeat()
    assert again.waits
    settle(host, [first.join(), again])
    assert len(host.group().members) == 2


def test_static_members_that_stay_away_are_kept_in_the_next_generation() -> None:
    host = Host()
    members = [Classic(host, instance_id=name).join() for name in ("a", "b")]
    settle(host, members)
    third = Classic(host, instance_id="c").join()
    members[0].join()
    host.pass_ms(SESSION_MS - 1)
    members[1].heartbeat()
    host.pass_ms(SESSION_MS - 1)
    members[1].heartbeat()
    host.pass_ms(10)
    assert members[0].joined().generation_id == 2
    assert len(members[0].members) == 3 and third.joined().generation_id == 2


def test_when_only_static_members_stay_and_none_joins_the_rebalance_waits_on() -> None:
    host = Host()
    static = Classic(host, instance_id="a").join()
    settle(host, [static])
    other = Classic(host).join()
    other.leave()
    for _ in range(8):
        host.pass_ms(REBALANCE_MS // 6)
        static.heartbeat()
    assert host.group().state is ClassicState.PREPARING_REBALANCE
    static.join()
    assert static.joined().error_code == ErrorCode.NONE


def test_an_administrator_takes_static_members_out_by_instance_id() -> None:
    host = Host()
    members = [Classic(host, instance_id=name).join() for name in ("a", "b")]
    settle(host, members)
    request = LeaveGroupRequest(
        group_id="g",
        members=[MemberIdentity(group_instance_id="a"), MemberIdentity(group_instance_id="none")],
    )
    answer = host.call(request, 5)
    assert [one.error_code for one in answer.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert list(host.group().static_members) == ["b"]


def test_leaving_with_anothers_instance_id_is_fenced() -> None:
    host = Host()
    members = [Classic(host, instance_id=name).join() for name in ("a", "b")]
    settle(host, members)
    request = LeaveGroupRequest(
        group_id="g", members=[MemberIdentity(member_id=members[0].member_id, group_instance_id="b")]
    )
    assert host.call(request, 5).members[0].error_code == ErrorCode.FENCED_INSTANCE_ID
