"""A share partition at its leader, with a share coordinator that the test plays."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.share.partition import ShareLeader
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.share.partition import Acknowledgement, AcknowledgeType, AcquireRequest, Limits, LogBatch, SharePartition
from ottla.share.state import SharePartitionKey
from tests.broker.test_replicated_produce import Pair


class _Shares:
    """The share partitions of a node, and the share coordinator, whose answers the test gives."""

    def __init__(self) -> None:
        self.runtime: Any = SimpleNamespace(clock=SimpleNamespace(monotonic_ms=lambda: 0), loop=self)
        self.current: Any = None
        self.settings_of: Any = None
        self.dropped: list[Any] = []
        self.answers: list[Callable[[Any], None]] = []

    def call_later(self, seconds: float, call: Callable[[], None]) -> Any:
        return SimpleNamespace(cancel=lambda: None)

    def persister(self) -> Any:
        return self

    def write(self, key: Any, state_epoch: int, leader_epoch: int, change: Any, done: Callable[[Any], None]) -> None:
        self.answers.append(done)

    def find(self, key: Any) -> Any:
        return self.current

    def drop(self, key: Any) -> None:
        self.dropped.append(self.current)


@pytest.mark.parametrize("replaced", [True, False])
def test_a_fenced_write_drops_its_own_share_partition_and_not_the_one_of_the_next_epoch(replaced: bool) -> None:
    shares = _Shares()
    partition: Any = SimpleNamespace(leader_epoch=3, log=SimpleNamespace(start_offset=0))
    leader = ShareLeader(cast(Any, shares), SharePartitionKey("g", Uuid(b"t" * 16), 0), partition)
    leader.machine = SharePartition(0, (), Limits())
    leader.machine.acquire("m", [LogBatch(0, 4)], AcquireRequest(5, 5), 0)
    told: list[Any] = []
    leader.acknowledge("m", [Acknowledgement(0, 4, [AcknowledgeType.ACCEPT])], told.append)
    shares.current = object() if replaced else leader
    shares.answers.pop()(KafkaError(ErrorCode.FENCED_LEADER_EPOCH))
    assert [each.code for each in told] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert shares.dropped == ([] if replaced else [leader])


def test_a_new_group_at_a_new_leader_begins_behind_what_the_leader_before_had_committed() -> None:
    """With `latest`: the new leader does not know yet that its records are committed."""
    pair = Pair()
    pair.produce(acks=1)
    pair.change(leader=2)
    pair.change(leader=1)
    shares = _Shares()
    shares.settings_of = lambda _: SimpleNamespace(share_auto_offset_reset="latest")
    leader = ShareLeader(cast(Any, shares), SharePartitionKey("g", Uuid(b"t" * 16), 0), pair.partition)
    found: list[int] = []
    leader._find_start(found.append)
    assert found == []
    pair.follower_has(1)
    assert found == [1]
