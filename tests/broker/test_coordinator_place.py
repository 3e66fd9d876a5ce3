"""Which partition of a coordinator's topic a name belongs to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.coordinators.coordinators import Coordinators
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import coordinator_partition
from ottla.wire.api.create_topics import CreatableTopic


class _Some(Coordinators[Any]):
    topic = "__some"

    def make(self, partition: Any) -> Any:
        return object()

    def new_topic(self) -> CreatableTopic:
        return CreatableTopic(name=self.topic, num_partitions=50)


def _made(count: int | None) -> _Some:
    topics = {} if count is None else {"__some": SimpleNamespace(partitions=[None] * count)}
    parts: Any = SimpleNamespace(runtime=SimpleNamespace(image=SimpleNamespace(topics=topics)))
    return _Some(parts)


@pytest.mark.parametrize(("count", "expected"), [(None, 50), (50, 50), (3, 3), (64, 64)])
def test_a_name_s_partition_counts_by_the_topic_that_there_is(count: int | None, expected: int) -> None:
    """The setting may have changed since the topic was made."""
    coordinators = _made(count)
    assert coordinators.has_topic is (count is not None)
    for name in (f"group-{number}" for number in range(200)):
        assert coordinators.partition_of(name) == coordinator_partition(name, expected) < expected


def test_who_does_not_coordinate_says_whether_it_will() -> None:
    coordinators = _made(3)
    with pytest.raises(KafkaError) as caught:
        coordinators.driver_at(1)
    assert caught.value.code is ErrorCode.NOT_COORDINATOR
    coordinators._loading[1] = (object(), iter(()))
    with pytest.raises(KafkaError) as caught:
        coordinators.driver_at(1)
    assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(KafkaError) as caught:
        coordinators.drivers()
    assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert coordinators.find(1) is None and coordinators.loaded() == []
