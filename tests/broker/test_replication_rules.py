"""When a leader looks for replicas that lag behind, and when it sends consumers to the replica in their rack."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.broker.partitions.replication import Replication
from ottla.replica.leader import TimePassed
from ottla.replica.selector import LEADER, LEADER_ONLY, RACK_AWARE


def _replication(
    partitions: dict[Any, Any], *, selector: str | None = None, lag_ms: int = 30_000
) -> tuple[Replication, Any]:
    runtime = Mock()
    runtime.settings = SimpleNamespace(replica_lag_time_max_ms=lag_ms, replica_selector_class=selector)
    runtime.image.brokers = {number: SimpleNamespace(rack=rack) for number, rack in ((1, "a"), (2, "b"), (3, "b"))}
    return Replication(runtime, partitions, Mock(), Mock(), Mock(), Mock(), Mock()), runtime.loop


@pytest.mark.parametrize(("lag_ms", "seconds"), [(30_000, 15.0), (500, 0.25), (1, 0.0005), (0, 0.0005)])
def test_replicas_are_looked_at_twice_in_the_time_that_they_may_lag(lag_ms: int, seconds: float) -> None:
    led, alone = Mock(), Mock(machine=None)
    replication, loop = _replication({("t", 0): led, ("t", 1): alone}, lag_ms=lag_ms)
    replication.start()
    (given,) = loop.call_later.call_args_list
    assert given.args[0] == seconds
    assert not led.step.called
    given.args[1]()
    assert [each.args[0] for each in loop.call_later.call_args_list] == [seconds] * 2
    led.step.assert_called_once_with(TimePassed())
    assert not alone.step.called, "it has no followers"


@pytest.mark.parametrize(
    ("selector", "rack", "followed", "asked"),
    [
        (RACK_AWARE, "b", True, True),
        (RACK_AWARE, "", True, False),
        (RACK_AWARE, "b", False, False),
        (LEADER_ONLY, "b", True, False),
        (None, "b", True, False),
        ("com.example.Own", "b", True, False),
    ],
)
def test_a_consumer_is_sent_to_its_rack_where_the_settings_say_so(
    selector: str | None, rack: str, followed: bool, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []

    def nearest(*arguments: Any) -> int:
        given.append(arguments)
        return 2

    monkeypatch.setattr("ottla.broker.partitions.replication.nearest", nearest)
    replication, _ = _replication({}, selector=selector)
    partition: Any = Mock() if followed else Mock(machine=None)
    assert replication.nearest(partition, rack, 7) == (2 if asked else LEADER)
    assert given == ([(partition.machine, {1: "a", 2: "b", 3: "b"}, rack, 7)] if asked else [])


@pytest.mark.parametrize(
    ("selector", "told"),
    [("com.example.Own", True), (RACK_AWARE, False), (LEADER_ONLY, False), ("", False), (None, False)],
)
def test_an_unknown_selector_is_told(selector: str | None, told: bool, caplog: pytest.LogCaptureFixture) -> None:
    _replication({}, selector=selector)[0].start()
    assert bool(caplog.messages) is told
    assert all(f"replica.selector.class={selector}" in each for each in caplog.messages)
