"""Frames of memory that is used again: never while somebody looks at it."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ottla.client.producer.delivery import ProducerBatch
from ottla.client.producer.outgoing import ColumnMapping, Cut, cuts, fill
from ottla.kernel.memory import Frames
from ottla.net.answer_frames import AnswerFrames
from ottla.wire.batch import header_at
from ottla.wire.codec import Codec

MIB = 1 << 20


def address(view: memoryview) -> int:
    return int(np.frombuffer(view, dtype=np.uint8).ctypes.data)


def test_memory_that_nobody_looks_at_is_used_again() -> None:
    memory = Frames()
    first = memory.take(3 * MIB)
    place = address(first)
    del first
    again = memory.take(3 * MIB - 5)
    assert address(again) == place
    assert len(again) == 3 * MIB - 5


@pytest.mark.parametrize("look", [lambda view: view[5:9], np.frombuffer, pa.py_buffer])
def test_memory_that_somebody_looks_at_is_left_alone(look: object) -> None:
    memory = Frames()
    frames = [memory.take(MIB) for _ in range(6)]
    assert len({address(frame) for frame in frames}) == 6
    place = address(frames[-1])
    kept = look(frames.pop())  # type: ignore[operator]
    frames.clear()
    assert all(address(memory.take(MIB)) != place for _ in range(6))
    del kept


def test_only_a_few_frames_are_kept_and_small_ones_are_not() -> None:
    memory = Frames()
    for size in (MIB, 2 * MIB, 3 * MIB, 4 * MIB, 100 * MIB, 1000):
        memory.take(size)
    assert sum(map(len, memory.kept)) <= 64 * MIB
    assert len(memory.kept) <= 3
    assert min(map(len, memory.kept), default=MIB) >= MIB


def test_long_answers_one_after_another_share_memory_and_keep_their_bytes() -> None:
    inbound = AnswerFrames()
    sent = [bytes([number]) * (MIB + number * 1000) for number in range(5)]
    stream = b"".join(len(one).to_bytes(4, "big") + one for one in sent)
    places, at = set(), 0
    for number in range(5):
        found: list[memoryview] = []
        while not found:
            room = inbound.room()
            some = stream[at : at + min(len(room), 300_000)]
            room[: len(some)] = some
            at += len(some)
            found = inbound.filled(len(some))
            del room
        assert found[0] == sent[number]
        places.add(address(found[0]))
    assert len(places) <= 2


def test_a_batch_keeps_its_memory_until_it_is_over() -> None:
    memory = Frames(4)
    table = pa.table({"value": [b"%0400d" % number for number in range(1_000)]})

    def sent(timestamp: int) -> ProducerBatch:
        (cut,) = cuts(table, ColumnMapping(), lambda: 1, 1 << 20, lambda: timestamp)
        assert isinstance(cut, Cut)
        batch = ProducerBatch("t", 0, 0, 0)
        fill(batch, cut, Codec.NONE, None, memory.take)
        batch.sequence((9, 0), 0)
        return batch

    waits = sent(1)
    under_way = waits.encode(Codec.NONE, None)
    before = bytes(under_way)
    places = set()
    for timestamp in range(2, 12):
        other = sent(timestamp)
        assert read_timestamp(other.encode(Codec.NONE, None)) == timestamp
        assert other.uncompressed is not None
        places.add(address(other.uncompressed))
        other.succeed(0, -1)
    assert len(places) == 1
    assert waits.encode(Codec.NONE, None) == before
    # Over, but the transport has not written all of it.
    waits.succeed(0, -1)
    for timestamp in range(2, 12):
        sent(timestamp).succeed(0, -1)
    assert under_way == before


def read_timestamp(data: Any) -> int:
    return header_at(data).base_timestamp
