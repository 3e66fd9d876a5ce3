"""Where `spread` puts replicas: in turn, over racks first."""

from __future__ import annotations

import pytest

from ottla.client import TopicPartition
from ottla.operations.reassignment import RacksUnknown, TooFewBrokers, spread

A0, A1, A2 = (TopicPartition("a", number) for number in range(3))


def test_replicas_go_in_turn_over_the_brokers_from_the_first_one_on() -> None:
    now = {A0: [9, 8], A1: [9, 8], A2: [9, 8]}
    assert spread(now, dict.fromkeys((1, 2, 3)), 1) == {A0: [2, 3], A1: [3, 1], A2: [1, 2]}


def test_racks_come_before_brokers() -> None:
    assert spread({A0: [9, 8]}, {1: "r", 2: "r", 3: "s", 4: "s"}, 0) == {A0: [1, 3]}


def test_some_racks_that_are_not_known_are_refused() -> None:
    with pytest.raises(RacksUnknown):
        spread({A0: [9]}, {1: "r", 2: None}, 0)


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(TooFewBrokers, match="3 replicas need 3 nodes, but there are 2") as refused:
        spread({A0: [1, 2, 3]}, dict.fromkeys((1, 2)), 0)
    assert (refused.value.wanted, refused.value.there) == (3, 2)
