"""The subscribed names of a long heartbeat: what is done with them before the coordinator's step."""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.coordinators.group_driver import GroupDriver
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


def steps(work: Generator[None, None, Any]) -> int:
    return sum(1 for _ in work)


@pytest.mark.parametrize("count", [0, 1, 4_999, 5_000, 5_001, 10_000, 15_001, 35_000])
def test_the_names_of_a_long_heartbeat_are_sorted_in_steps(count: int) -> None:
    """A sort of names that are in order costs the coordinator's step a fifth."""
    names = [f"topic-{number}" for number in range(count)]
    request = ConsumerGroupHeartbeatRequest(subscribed_topic_names=Random(7).sample(names * 2, 2 * count))
    driver: Any = SimpleNamespace(_batch_bytes_max=lambda: None)
    assert steps(GroupDriver.name_once(driver, request)) >= 2 * count // 5_000
    assert request.subscribed_topic_names == sorted(names)
