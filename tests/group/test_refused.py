"""The log refuses the records of a step: members get Kafka's errors, and nothing half-done stays in the coordinator."""

from __future__ import annotations

import pytest

from ottla.group.setting import CoordinatorSettings
from ottla.group.state.classic import ClassicState
from ottla.group.state.consumer import ConsumerGroup
from ottla.kernel.error import ErrorCode
from ottla.wire.api.join_group import JoinGroupRequest
from tests.group.client import REBALANCE_MS, SESSION_MS, Classic, Consumer, commit, settle, settled, stable_group
from tests.group.host import Host

ERRORS = [
    (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
]


@pytest.mark.parametrize(("refuses", "told"), ERRORS)
def test_all_who_synced_get_the_error_of_a_refused_assignment_and_the_group_rebalances(
    refuses: ErrorCode, told: ErrorCode
) -> None:
    host = Host()
    members = [Classic(host).join() for _ in range(3)]
    host.pass_ms(7_000)
    for member in members:
        member.joined()
    leader, follower, silent = members
    follower.sync()
    host.refuses = refuses
    leader.sync()
    assert leader.synced().error_code == follower.synced().error_code == told
    assert host.group().state is ClassicState.PREPARING_REBALANCE
    host.refuses = None
    assert silent.heartbeat() is follower.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    for member in members:
        member.join()
    settle(host, members)
    assert leader.generation == 2


def test_the_session_of_a_member_that_waited_for_a_refused_assignment_ends() -> None:
    """A session that is over while its member waits for SyncGroup is not looked at again."""
    host = Host()
    leader, follower = Classic(host).join(), Classic(host).join()
    host.pass_ms(7_000)
    leader.joined(), follower.joined()
    follower.sync()
    for _ in range(4):
        host.pass_ms(SESSION_MS // 3)
        assert leader.heartbeat() is ErrorCode.NONE
    host.refuses = ErrorCode.MESSAGE_TOO_LARGE
    leader.sync()
    host.refuses = None
    leader.leave()
    host.pass_ms(max(SESSION_MS, REBALANCE_MS))
    assert host.group().is_empty


@pytest.mark.parametrize(("refuses", "told"), ERRORS)
def test_the_first_member_of_a_group_that_is_refused_leaves_nothing(refuses: ErrorCode, told: ErrorCode) -> None:
    host = Host()
    host.refuses = refuses
    request: JoinGroupRequest = Classic(host, version=3).join_request()
    answer = host.call(request, 3)
    assert (answer.error_code, answer.member_id) == (told, "")
    assert host.group() is None and host.coordinator.deadline_ms() == Host().coordinator.deadline_ms()
    host.refuses = None
    settle(host, [Classic(host).join()])


@pytest.mark.parametrize(("refuses", "told"), ERRORS)
def test_a_last_member_whose_leaving_is_refused_is_gone_all_the_same(refuses: ErrorCode, told: ErrorCode) -> None:
    """As in Apache Kafka: a later leader has the old generation, whose session ends by itself."""
    host = Host()
    [member] = stable_group(host, 1)
    host.refuses = refuses
    assert member.leave().error_code == told
    assert host.group().is_empty
    host.refuses = None
    host.restart()
    assert [*host.group().members] == [member.member_id]
    host.pass_ms(SESSION_MS)
    assert host.group().is_empty and host.replayed_group().is_empty


def test_a_last_member_whose_session_ends_while_the_log_refuses_records_is_gone() -> None:
    host = Host()
    stable_group(host, 1)
    host.refuses = ErrorCode.MESSAGE_TOO_LARGE
    host.pass_ms(SESSION_MS)
    assert host.group().is_empty


def test_members_of_a_classic_group_stay_when_its_conversion_is_refused() -> None:
    host = Host()
    first, second = stable_group(host, 2)
    second.topics = ["clicks"]
    second.join()
    assert second.waits
    # Its session passes while it waits for the leader to join.
    for _ in range(4):
        host.pass_ms(SESSION_MS // 3)
        first.heartbeat()
    host.refuses = ErrorCode.MESSAGE_TOO_LARGE
    assert Consumer(host, "new").join().error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert second.joined().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    host.refuses = None
    assert host.group().state is ClassicState.PREPARING_REBALANCE and len(host.group().members) == 2
    settle(host, [first.join(), second.join()])
    first.leave(), second.leave()
    assert host.group().is_empty


def test_the_session_of_a_consumer_is_looked_at_again_when_its_end_was_refused() -> None:
    host = Host()
    settled(host, "a")
    host.refuses = ErrorCode.MESSAGE_TOO_LARGE
    host.pass_ms(60_000)
    assert isinstance(host.group(), ConsumerGroup) and not host.group().is_empty
    host.refuses = None
    host.pass_ms(500)
    assert host.group().is_empty


def test_offsets_whose_expiration_was_refused_wait_for_the_next_check() -> None:
    interval_ms = 600_000
    host = Host(CoordinatorSettings(offsets_retention_minutes=5, offsets_retention_check_interval_ms=interval_ms))
    assert commit(host, {0: 1}) == [ErrorCode.NONE]
    host.refuses = ErrorCode.MESSAGE_TOO_LARGE
    host.pass_ms(interval_ms)
    assert host.coordinator.deadline_ms() == host.now_ms + interval_ms
    host.refuses = None
    host.pass_ms(interval_ms)
    assert host.group() is None
