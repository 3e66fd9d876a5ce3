"""The table of a record's states in a share group, against random members of one partition."""

from random import Random

import pytest

from ottla.kernel.error import KafkaError
from ottla.share import window
from ottla.share.partition import (
    Acknowledgement,
    AcknowledgeType,
    AcquireRequest,
    Limits,
    LogBatch,
    SharePartition,
    Write,
)
from ottla.share.state import RecordState
from ottla.share.window import Run
from tests.machine import table, watch


def test_records_take_the_states_of_the_table_and_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watch(monkeypatch, Run, "state", lambda state: RecordState(state).name)
    random = Random(1)
    for _ in range(200):
        partition = SharePartition(0, (), Limits(delivery_count=2, record_lock_duration_ms=100))
        now_ms = 0
        for _ in range(30):
            now_ms += random.choice((0, 60))
            for write in _act(random, partition, now_ms):
                if write is not None:
                    partition.settle(write.number, stored=random.random() < 0.8)
    assert seen == table(window)


def _act(random: Random, partition: SharePartition, now_ms: int) -> list[Write | None]:
    """One thing that a member, the clock or the log does."""
    member, first = random.choice("ab"), random.randrange(20)
    action = random.randrange(5)
    if action == 0:
        batches = [LogBatch(start, start + 4, visible=random.random() < 0.8) for start in range(0, 20, 5)]
        return [partition.acquire(member, batches, AcquireRequest(7, 3), now_ms)[1]]
    if action == 1:
        said = Acknowledgement(first, first, [int(random.choice(list(AcknowledgeType)))])
        try:
            return [partition.acknowledge(member, [said], now_ms)]
        except KafkaError:
            return []
    if action == 2:
        return [partition.release(member)]
    if action == 3:
        return [partition.expire(now_ms)]
    partition.start_log_at(random.randrange(3))
    return []
