"""FindCoordinator: which topic's partition decides, what is said when no broker can be named, and of very many keys."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.broker.call.reply import Later
from ottla.broker.handlers.group import consumer_group_heartbeat, find_coordinator
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from tests.broker.table_node import called, done

KINDS = ("groups", "transactions", "share_states")
SHARE_KEY = f"g:{'A' * 22}:3"


class _Kind:
    """The coordinators of a kind: key `p1` belongs to partition 1, and so on; share keys to partition 0."""

    def __init__(self, number: int, *, there: bool = True) -> None:
        self.topic, self.has_topic = f"topic-{number}", there
        self.made = 0
        self.ready: list[Any] = []

    def ensure_topic(self, then: Any) -> None:
        self.made += 1
        self.ready.append(then)

    def partition_of(self, key: str) -> int:
        return int(key[1:]) if key.startswith("p") else 0


def _call(version: int, *, there: bool = True) -> tuple[Any, list[_Kind]]:
    """Partition 1 of kind n is led by broker 10 n + 1, which is alive for n = 0 and 1; partition 2 by none."""
    kinds = [_Kind(number, there=there) for number in range(3)]
    topics = {
        kind.topic: SimpleNamespace(
            partitions=[SimpleNamespace(leader=leader) for leader in (10 * number, 10 * number + 1, -1)]
        )
        for number, kind in enumerate(kinds)
        if there
    }
    alive = {leader: SimpleNamespace(node_id=leader, host=f"h{leader}", port=9) for leader in (0, 1, 10, 11, 20, 21)}
    call = called(version, image=SimpleNamespace(topics=topics), **dict(zip(KINDS, kinds, strict=True)))
    call.node.brokers_at = lambda listener: SimpleNamespace(alive_node=alive.get)
    return call, kinds


def _found(call: Any, kinds: list[_Kind], key_type: int, *keys: str) -> list[tuple[int, str, str]]:
    """(node or minus the code, host, message) of each key."""
    old = call.version < 4
    request = (
        FindCoordinatorRequest(key_type=key_type, key=keys[0])
        if old
        else FindCoordinatorRequest(key_type=key_type, coordinator_keys=[*keys])
    )
    reply = find_coordinator(call, request)
    for kind in kinds:
        for then in kind.ready:
            assert isinstance(reply, Later) and not reply.resolved, "the topic is made first"
            then()
    answer = done(reply, call)
    answers = [answer] if old else list(answer.coordinators)
    if not old:
        assert [each.key for each in answers] == [*keys]
    assert all((each.node_id, each.host, each.port) == (-1, "", -1) for each in answers if each.error_code)
    return [
        (-each.error_code if each.error_code else each.node_id, each.host, each.error_message or "") for each in answers
    ]


@pytest.mark.parametrize("version", [3, 4, 5, 6])
def test_each_kind_has_its_topic(version: int) -> None:
    for key_type, kind in enumerate(KINDS[:2]):
        call, kinds = _call(version)
        leader = 10 * key_type + 1
        assert _found(call, kinds, key_type, "p1") == [(leader, f"h{leader}", "NONE" if version < 4 else "")]
        assert [each.made for each in kinds] == [int(kind == name) for name in KINDS]


@pytest.mark.parametrize(
    ("version", "key_type"),
    [(3, 2), (5, 2), (6, 3), (3, 3), (6, -1)],
    ids=["share in 3", "share in 5", "none in 6", "none in 3", "negative"],
)
def test_a_kind_that_the_version_does_not_have_is_refused_and_makes_no_topic(version: int, key_type: int) -> None:
    call, kinds = _call(version)
    ((code, _, text),) = _found(call, kinds, key_type, SHARE_KEY)
    assert (code, bool(text)) == (-ErrorCode.INVALID_REQUEST, True)
    assert not any(each.made for each in kinds)


def test_a_share_key_has_three_parts() -> None:
    call, kinds = _call(6)
    assert _found(call, kinds, 2, SHARE_KEY) == [(20, "h20", "")]
    assert kinds[2].made == 1
    for wrong in ("", "g", "g:t", "g:t:3", f"g:{'A' * 22}:x"):
        call, kinds = _call(6)
        ((code, _, _),) = _found(call, kinds, 2, wrong)
        assert (code, kinds[2].made) == (-ErrorCode.INVALID_REQUEST, 0), wrong
    # One that is right makes the topic, and the others fail alone.
    call, kinds = _call(6)
    assert [code for code, _, _ in _found(call, kinds, 2, "g", SHARE_KEY)] == [-ErrorCode.INVALID_REQUEST, 20]
    assert kinds[2].made == 1


def test_a_partition_without_a_leader_that_is_alive_names_no_coordinator() -> None:
    for version in (3, 6):
        call, kinds = _call(version)
        ((code, _, text),) = _found(call, kinds, 0, "p2")
        assert (code, bool(text)) == (-ErrorCode.COORDINATOR_NOT_AVAILABLE, True)
        # The topic could not be made.
        call, kinds = _call(version, there=False)
        ((code, _, _),) = _found(call, kinds, 0, "p1")
        assert code == -ErrorCode.COORDINATOR_NOT_AVAILABLE
    call, kinds = _call(6)
    assert [code for code, _, _ in _found(call, kinds, 0, "p0", "p2", "p1")] == [
        0,
        -ErrorCode.COORDINATOR_NOT_AVAILABLE,
        1,
    ]


@pytest.mark.parametrize("count", [500, 501, 2000])
def test_very_many_keys_are_answered_like_few(count: int) -> None:
    call, kinds = _call(6)
    keys = [f"p{number % 3}" for number in range(count)]
    expected = {0: 0, 1: 1, 2: -ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert [code for code, _, _ in _found(call, kinds, 0, *keys)] == [expected[number % 3] for number in range(count)]
    assert kinds[0].made == 1


# ---- a member whose topics an expression selects


def test_an_expression_is_evaluated_before_the_coordinator_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla.broker.handlers import group

    call = called(1)
    call.is_long = False
    call.node.image.features = {"group.version": 1}
    call.node.settings.group_coordinator_rebalance_protocols = ("classic", "consumer")
    call.node.authorizer = None
    before, after = Mock(), Mock()
    drivers = iter((before, after))
    call.node.groups.driver_of = lambda group_id: next(drivers)

    def selecting(regex: str, topics: Any) -> Any:
        assert (regex, topics) == ("a.*", before.machine.shard.topics)
        yield
        return "selected"

    monkeypatch.setattr(group, "select", selecting)
    request = ConsumerGroupHeartbeatRequest(group_id="g", subscribed_topic_regex="a.*")
    reply = consumer_group_heartbeat(call, request)
    assert not before.ask.called and not after.ask.called, "the topics are selected in steps"
    call.turns.pop(0)()
    # The group may have moved meanwhile to another coordinator of this node.
    assert not before.ask.called
    assert after.ask.call_args.kwargs["selected"] == "selected"
    after.ask.call_args.args[2]("answer")
    assert reply.value == "answer"
    # No expression, also an empty one, needs no steps.
    for regex in (None, ""):
        driver = Mock()
        call.node.groups.driver_of = lambda group_id, driver=driver: driver
        consumer_group_heartbeat(call, ConsumerGroupHeartbeatRequest(group_id="g", subscribed_topic_regex=regex))
        assert driver.ask.call_args.kwargs.get("selected") is None
    call.node.image.features = {}
    with pytest.raises(KafkaError) as refused:
        consumer_group_heartbeat(call, request)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
