"""A group changes its protocol while it lives: classic to consumer and back (KIP-848)."""

from typing import Any

import pytest

from ottla.group.setting import CoordinatorSettings
from ottla.group.state.classic import ClassicGroup, ClassicState
from ottla.group.state.consumer import ConsumerGroup, MemberState
from ottla.kernel.error import ErrorCode
from ottla.wire.api.join_group import JoinGroupRequestProtocol
from ottla.wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.group.client import REBALANCE_MS, SESSION_MS, Classic, Consumer, fetched, rounds, settle, stable_group
from tests.group.host import Host

NONE = ErrorCode.NONE


def go_on(host: Host, classics: list[Classic], consumers: list[Consumer], count: int = 5) -> None:
    """Let both kinds of members do what they are told, for some rounds."""
    for _ in range(count):
        host.pass_ms(1_000)
        for consumer in consumers:
            assert consumer.beat().error_code == NONE
        for classic in classics:
            if classic.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS:
                classic.owned = shrunk(host, classic)
                assert classic.join().joined().error_code == NONE
                classic.sync()
                classic.synced()


def shrunk(host: Host, classic: Classic) -> dict[str, list[int]]:
    """What a cooperative consumer keeps: what the coordinator has it down for."""
    member = host.group().members[classic.member_id]
    return {
        host.topics.topic_name(topic_id) or "": sorted(partitions) for topic_id, partitions in member.assigned.items()
    }


def everything(classics: list[Classic], consumers: list[Consumer]) -> list[int]:
    owned = [one.owned.get("orders", []) for one in classics] + [one.partitions() for one in consumers]
    return sorted(partition for partitions in owned for partition in partitions)


def test_the_first_new_consumer_turns_a_classic_group_into_a_consumer_group_and_nobody_loses_anything() -> None:
    host = Host()
    classics = stable_group(host, 2)
    classics[0].commit(0, 5)
    new = Consumer(host, "new")
    assert new.join().error_code == NONE
    assert isinstance(host.group(), ConsumerGroup) and len(host.group().members) == 3
    assert everything(classics, [new]) == [0, 1, 2, 3]
    go_on(host, classics, [new])
    assert everything(classics, [new]) == [0, 1, 2, 3] and new.partitions()
    assert fetched(host, "g", {"orders": [0]}) == {("orders", 0): (5, NONE)}
    assert host.replayed_group().members == host.group().members


def test_who_waits_in_a_classic_rebalance_is_told_to_join_again() -> None:
    host = Host()
    classics = stable_group(host, 2)
    third = Classic(host).join()
    assert third.waits
    Consumer(host, "new").join()
    assert third.joined().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    go_on(host, [*classics, third], [])
    assert everything([*classics, third], []) != []


def test_syncs_that_wait_are_told_to_join_again() -> None:
    host = Host()
    leader, follower = Classic(host).join(), Classic(host).join()
    host.pass_ms(6_000)
    leader.joined(), follower.joined()
    follower.sync()
    Consumer(host, "new").join()
    assert follower.synced().error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_group_in_its_first_rebalance_can_be_converted() -> None:
    host = Host()
    classic = Classic(host).join()
    new = Consumer(host, "new")
    assert new.join().error_code == NONE
    assert classic.joined().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    host.pass_ms(10_000)
    assert classic.join().joined().error_code == NONE
    classic.sync()
    classic.synced()
    go_on(host, [classic], [new])
    assert everything([classic], [new]) == [0, 1, 2, 3]


def test_an_empty_group_of_either_kind_gives_way_and_keeps_its_offsets() -> None:
    host = Host()
    (classic,) = stable_group(host, 1)
    classic.commit(0, 5)
    classic.leave()
    new = Consumer(host, "new")
    new.join()
    assert isinstance(host.group(), ConsumerGroup) and new.partitions() == [0, 1, 2, 3]
    new.leave()
    stable_group(host, 1)
    assert isinstance(host.group(), ClassicGroup) and host.group().generation == 1
    assert isinstance(host.replayed_group(), ClassicGroup)
    assert fetched(host, "g", {"orders": [0]}) == {("orders", 0): (5, NONE)}


def test_when_the_last_new_consumer_leaves_the_group_is_classic_again_and_rebalances() -> None:
    host = Host()
    classics = stable_group(host, 2)
    new = Consumer(host, "new")
    new.join()
    go_on(host, classics, [new])
    new.leave()
    assert isinstance(host.group(), ClassicGroup) and host.group().state is ClassicState.STABLE
    host.pass_ms(0)
    assert classics[0].heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    for one in classics:
        one.join()
    settle(host, classics)
    assert everything(classics, []) == [0, 1, 2, 3]
    assert isinstance(host.replayed_group(), ClassicGroup)


def test_members_of_a_group_that_is_classic_again_have_all_their_protocols() -> None:
    """The record has only the one that was chosen; a member may be on its way to another."""
    host = Host()
    classics = stable_group(host, 2, protocols=["range", "sticky"])
    new = Consumer(host, "new")
    assert new.join().error_code == NONE
    assert new.leave().error_code == NONE
    host.pass_ms(1)
    group = host.group()
    assert [[name for name, _ in each.protocols] for each in group.members.values()] == [["range", "sticky"]] * 2
    assert host.coordinator.shard.protocols == {}
    classics[0].protocols = ["sticky", "other"]
    classics[0].join()
    classics[1].join()
    assert [each.joined().protocol_name for each in classics] == ["sticky"] * 2


def test_a_silent_new_consumer_that_was_the_last_one_brings_the_classic_group_back() -> None:
    host = Host()
    classics = stable_group(host, 1)
    new = Consumer(host, "new")
    new.join()
    for _ in range(5):
        host.pass_ms(10_000)
        if isinstance(host.group(), ConsumerGroup):
            go_on(host, classics, [], 1)
    assert isinstance(host.group(), ClassicGroup)


def test_a_classic_member_joins_a_consumer_group_in_two_steps_and_leads_nobody() -> None:
    host = Host()
    new = Consumer(host, "new")
    new.join()
    classic = Classic(host)
    first = host.call(classic.join_request(), 9)
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    classic.member_id = first.member_id
    classic.join()
    answer = classic.joined()
    assert (answer.error_code, answer.leader, answer.members, answer.protocol_name) == (NONE, "", [], "range")
    go_on(host, [classic], [new])
    assert everything([classic], [new]) == [0, 1, 2, 3] and len(new.partitions()) == 2


def test_a_classic_member_that_knows_of_no_second_step_joins_a_consumer_group_in_one() -> None:
    host = Host()
    Consumer(host, "new").join()
    classic = Classic(host)
    assert host.call(classic.join_request(), 4).error_code == ErrorCode.MEMBER_ID_REQUIRED
    ticket = host.ask(classic.join_request(), 3)
    host.pass_ms(1_000)
    answer = host.answers[ticket]
    assert (answer.error_code, bool(answer.member_id)) == (NONE, True)


def test_what_a_classic_member_still_owns_goes_to_the_new_one_when_it_has_joined_without_it() -> None:
    """A cooperative consumer names what it owns with each join; what it must give up it owns until the next."""
    host = Host()
    (classic,) = stable_group(host, 1, protocols=["cooperative-sticky"])
    new = Consumer(host, "new")
    new.join()
    host.pass_ms(1_000)
    assert classic.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert classic.owned == {"orders": [0, 1, 2, 3]}
    assert classic.join().joined().error_code == NONE
    classic.sync()
    assert classic.synced().error_code == NONE and len(classic.owned["orders"]) == 2
    assert new.beat().error_code == NONE and new.partitions() == []
    assert classic.join().joined().error_code == NONE
    classic.sync()
    classic.synced()
    assert new.beat().error_code == NONE
    assert everything([classic], [new]) == [0, 1, 2, 3] and len(new.partitions()) == 2


def test_an_assignment_that_a_classic_member_brings_is_not_taken() -> None:
    host = Host()
    new = Consumer(host, "new")
    new.join()
    classic = Classic(host).join()
    classic.joined()
    request = SyncGroupRequest(
        group_id="g",
        generation_id=classic.generation,
        member_id=classic.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id="new", assignment=b"nonsense")],
    )
    assert host.call(request, 5).error_code == NONE
    assert new.partitions() == [0, 1, 2, 3]


def test_classic_members_of_a_consumer_group_get_classic_errors() -> None:
    host = Host()
    new = Consumer(host, "new")
    new.join()
    classic = Classic(host).join()
    classic.joined()

    def sync(**values: Any) -> ErrorCode:
        fields: dict[str, Any] = {
            "group_id": "g",
            "member_id": classic.member_id,
            "generation_id": classic.generation,
            "protocol_type": "consumer",
            "protocol_name": "range",
        }
        return ErrorCode(host.call(SyncGroupRequest(**{**fields, **values}), 5).error_code)

    assert sync(generation_id=classic.generation - 1) is ErrorCode.ILLEGAL_GENERATION
    assert sync(member_id="ghost") is ErrorCode.UNKNOWN_MEMBER_ID
    assert sync(member_id="new") is ErrorCode.UNKNOWN_MEMBER_ID
    assert sync(group_instance_id="none") is ErrorCode.UNKNOWN_MEMBER_ID
    assert sync(protocol_name="sticky") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sync(protocol_type="connect") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    ghost = Classic(host, member_id="ghost", generation=3)
    assert ghost.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert ghost.leave().members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert classic.commit(0, 5) is NONE
    classic.generation += 1
    assert classic.commit(0, 5) is ErrorCode.ILLEGAL_GENERATION
    other = Classic(host, protocols=["sticky"]).join()
    assert other.joined().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_classic_member_that_is_told_to_rejoin_and_does_not_is_fenced() -> None:
    host = Host()
    new = Consumer(host, "new")
    new.join()
    classic = Classic(host).join()
    classic.joined()
    classic.sync()
    other = Consumer(host, "other")
    other.join()
    for _ in range(9):
        host.pass_ms(REBALANCE_MS // 8)
        new.beat(), other.beat()
        classic.heartbeat()
    assert classic.member_id not in host.group().members


def test_a_classic_member_that_joins_and_does_not_sync_is_fenced() -> None:
    host = Host()
    new = Consumer(host, "new")
    new.join()
    classic = Classic(host).join()
    classic.joined()
    for _ in range(9):
        host.pass_ms(REBALANCE_MS // 8)
        new.beat()
        classic.heartbeat()
    assert classic.member_id not in host.group().members


def test_a_silent_classic_member_is_fenced_after_its_own_session_timeout() -> None:
    host = Host()
    new = Consumer(host, "new")
    new.join()
    classic = Classic(host).join()
    classic.joined()
    classic.sync()
    host.pass_ms(SESSION_MS + 1)
    assert classic.member_id not in host.group().members


def test_a_static_member_may_change_its_protocol_both_ways() -> None:
    host = Host()
    classics = [Classic(host, instance_id=name).join() for name in ("a", "b")]
    settle(host, classics)
    before = classics[1].owned["orders"]
    new = Consumer(host, "new", instance_id="b")
    assert new.join().error_code == NONE
    assert isinstance(host.group(), ConsumerGroup) and set(host.group().static_members) == {"a", "b"}
    assert new.partitions() == before
    assert host.group().members["new"].state is MemberState.STABLE
    back = Classic(host, instance_id="b").join()
    assert back.joined().error_code == NONE
    assert isinstance(host.group(), ClassicGroup) and set(host.group().static_members) == {"a", "b"}
    back.sync()
    assert back.synced().error_code == NONE and back.owned["orders"] == before
    assert isinstance(host.replayed_group(), ClassicGroup)


@pytest.mark.parametrize("version", [5, 9])
def test_a_dynamic_join_under_the_id_of_a_static_member_does_not_turn_the_group_back(version: int) -> None:
    host = Host()
    new = Consumer(host, "new", instance_id="i")
    new.join()
    before = host.group().epoch
    for _ in range(2):
        assert Classic(host, member_id="new", version=version).join().joined().error_code == NONE
        assert isinstance(host.group(), ConsumerGroup) and host.group().epoch == before
    assert host.group().members["new"].instance_id == "i"
    assert isinstance(host.replayed_group(), ConsumerGroup)


def test_an_administrator_takes_members_of_both_kinds_out_of_a_consumer_group() -> None:
    host = Host()
    new = Consumer(host, "new", instance_id="i")
    new.join()
    classic = Classic(host).join()
    classic.joined()
    request = LeaveGroupRequest(
        group_id="g",
        members=[
            MemberIdentity(group_instance_id="i"),
            MemberIdentity(member_id=classic.member_id),
            MemberIdentity(group_instance_id="none"),
            MemberIdentity(member_id="x", group_instance_id="i"),
        ],
    )
    answer = host.call(request, 5)
    assert [one.error_code for one in answer.members] == [
        NONE,
        NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    ]
    assert host.group().members == {}


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_an_upgrade_that_is_not_allowed_is_refused(policy: str) -> None:
    host = Host(CoordinatorSettings(group_consumer_migration_policy=policy))
    classics = stable_group(host, 1)
    answer = Consumer(host, "new").join()
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND and "online upgrade is disabled" in answer.error_message
    assert isinstance(host.group(), ClassicGroup) and classics[0].heartbeat() is NONE


def test_without_downgrade_a_group_of_classic_members_stays_a_consumer_group() -> None:
    host = Host(CoordinatorSettings(group_consumer_migration_policy="UPGRADE"))
    classics = stable_group(host, 1)
    new = Consumer(host, "new")
    new.join()
    new.leave()
    assert isinstance(host.group(), ConsumerGroup)
    go_on(host, classics, [])
    assert everything(classics, []) == [0, 1, 2, 3]


def test_a_classic_member_cannot_join_when_migration_is_disabled() -> None:
    host = Host(CoordinatorSettings(group_consumer_migration_policy="disabled"))
    Consumer(host, "new").join()
    assert Classic(host).join().joined().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_group_that_is_not_of_consumers_or_cannot_be_read_is_not_converted() -> None:
    host = Host()
    request = Classic(host).join_request()
    request.protocol_type = "connect"
    host.ask(request, 3)
    answer = Consumer(host, "new").join()
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "does not use the consumer embedded protocol" in answer.error_message
    request = Classic(host, group_id="h").join_request()
    request.protocols = [JoinGroupRequestProtocol(name="range", metadata=b"\0\3\0")]
    host.ask(request, 3)
    answer = Consumer(host, "new", group_id="h").join()
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "malformed" in answer.error_message


def test_a_conversion_that_fails_leaves_the_waiting_members_waiting() -> None:
    host = Host()
    waiting = Classic(host).join()
    answer = Consumer(host, "new", topics=None, regex="(").join()
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert waiting.waits
    host.pass_ms(6_001)
    assert waiting.joined().error_code == NONE


def test_a_converted_group_survives_a_restart() -> None:
    host = Host()
    classics = stable_group(host, 2)
    new = Consumer(host, "new")
    new.join()
    host.restart()
    rounds([new])
    go_on(host, classics, [new])
    assert everything(classics, [new]) == [0, 1, 2, 3]


def test_a_first_join_phase_that_a_consumer_has_cut_off_ends_no_later_one() -> None:
    host = Host()
    gone = Classic(host, version=3).join()
    gone.member_id = next(iter(host.group().members))
    gone.leave()
    assert host.group().state is ClassicState.PREPARING_REBALANCE
    consumer, stays = Consumer(host, "new"), Classic(host)
    assert consumer.join().error_code == NONE
    assert stays.join().joined().error_code == NONE
    consumer.leave()
    host.pass_ms(2 * host.settings.group_initial_rebalance_delay_ms)
    assert stays.join().joined().error_code == NONE
