"""A node's supply of producer ids: blocks that are asked for in time, one request at once, and no id twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.coordinators.producer_ids import ProducerIds
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.api.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


class Controllers:
    """Answers are given by the test."""

    def __init__(self) -> None:
        self.asked: list[AllocateProducerIdsRequest] = []
        self.answer: Callable[[Any], None] = lambda _: None

    def ask(self, request: Any, done: Callable[[Any], None]) -> None:
        self.asked.append(request)
        self.answer = done

    def give(self, first: int, length: int = 1000) -> None:
        self.answer(AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=length))


def supply() -> tuple[Controllers, ProducerIds]:
    controllers: Any = Controllers()
    return controllers, ProducerIds(3, controllers, lambda: 17)


def test_who_needs_the_first_id_waits_for_one_request() -> None:
    controllers, ids = supply()
    told: list[str] = []
    ids.when_available(lambda: told.append("a"))
    ids.when_available(lambda: told.append("b"))
    assert ids.next() is None and told == []
    assert controllers.asked == [AllocateProducerIdsRequest(broker_id=3, broker_epoch=17)]
    controllers.give(5000)
    assert told == ["a", "b"]
    ids.when_available(lambda: told.append("c"))
    assert told == ["a", "b", "c"] and len(controllers.asked) == 1
    assert [ids.next(), ids.next()] == [5000, 5001]


def test_who_finds_none_is_refused_and_has_it_asked_for() -> None:
    controllers, ids = supply()
    assert ids.next() is None and ids.next() is None
    assert len(controllers.asked) == 1


def test_the_next_block_is_asked_for_when_a_tenth_is_left_and_none_is_lost() -> None:
    controllers, ids = supply()
    assert ids.next() is None
    controllers.give(0)
    assert [ids.next() for _ in range(899)] == list(range(899)) and len(controllers.asked) == 1
    assert ids.next() == 899 and len(controllers.asked) == 2
    assert ids.next() == 900 and len(controllers.asked) == 2
    controllers.give(7000)
    assert [ids.next() for _ in range(101)] == [*range(901, 1000), 7000, 7001]
    assert len(controllers.asked) == 2


def test_after_a_failure_who_waits_is_told_and_the_next_asks_again() -> None:
    controllers, ids = supply()
    told: list[int | None] = []
    ids.when_available(lambda: told.append(ids.next()))
    controllers.answer(KafkaError(ErrorCode.NOT_CONTROLLER))
    assert told == [None] and len(controllers.asked) == 2
    controllers.give(40)
    assert ids.next() == 40 and told == [None]


def test_an_error_of_one_who_waits_keeps_no_id_from_the_others() -> None:
    controllers, ids = supply()
    told: list[int | None] = []
    ids.when_available(lambda: told.append(1 // 0))
    ids.when_available(lambda: told.append(ids.next()))
    with pytest.raises(ZeroDivisionError):
        controllers.give(40)
    assert told == [40]
