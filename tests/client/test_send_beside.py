"""What other threads do between any two steps of a `send`, which takes no lock: every record is in one batch, once."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count

import pytest

from ottla.client import Producer
from ottla.client.producer.delivery import Delivery, ProducerBatch
from ottla.client.producer.filling import Filling
from ottla.wire.batch import read
from ottla.wire.codec import Codec
from tests.client.at_point import AtPoint

#: A time of the program's own, long ago.
_GIVEN_MS = 1_000_000


class Sends:
    """A producer that reaches no broker, and what it was given."""

    def __init__(self, kind: str, batch_size: int = 16_384) -> None:
        self.producer: Producer = Producer("127.0.0.1:1", batch_size=batch_size)
        self.producer._sender.signal = lambda: None  # type: ignore[method-assign]
        self.accumulator = self.producer._accumulator
        self.kind = kind
        self.number = count()
        self.sent: list[tuple[Delivery, bytes, bytes | None, int | None]] = []
        self.taken: list[ProducerBatch] = []
        self.topic = ""

    def begin(self, topic: str) -> None:
        self.topic = topic
        self.sent, self.taken = [], []
        with self.producer._lock:
            self.accumulator.set_partitions(topic, 1, (0,))
        self.began_ms = time.time_ns() // 1_000_000
        # The batch is open, has keys, and its first record has come by the slow path.
        self.send()

    def send(self, timestamp: int | None = None) -> None:
        number = next(self.number)
        value = b"v%d" % number
        key = b"k%d" % number if self.kind == "keyed" or (self.kind == "mixed" and not number % 2) else None
        self.sent.append((self.producer.send(self.topic, value, key, timestamp=timestamp), value, key, timestamp))

    def send_given(self) -> None:
        self.send(_GIVEN_MS)

    def take(self) -> None:
        partition = self.accumulator.topics[self.topic].partitions[0]
        with self.producer._lock:
            while self.accumulator.due_ms(partition, 0) is not None:
                self.taken.append(self.accumulator.take(partition))

    def send_and_take(self) -> None:
        self.send()
        self.take()

    def take_and_send(self) -> None:
        self.take()
        self.send()

    def beside(self, act: Callable[[], None]) -> Callable[[], None]:
        """Another thread waits while this one has the lock."""
        return lambda: None if self.producer._lock.locked() else act()

    def check(self, told: str) -> None:
        self.take()
        ended_ms = time.time_ns() // 1_000_000
        records = {}
        for batch in self.taken:
            (each,) = read(batch.encode(Codec.NONE, None))
            assert batch.records == len(each.records()), told
            records[batch] = each.records()
        all_values = [record.value or b"" for found in records.values() for record in found]
        assert sorted(all_values) == sorted(value for _, value, _, _ in self.sent), told
        for delivery, value, key, timestamp in self.sent:
            record = records[delivery.batch][delivery.batch.position(delivery.index)]
            assert (record.value, record.key) == (value, key), told
            if timestamp is None:
                assert self.began_ms <= record.timestamp <= ended_ms, told
            else:
                assert record.timestamp == timestamp, told


@pytest.mark.parametrize("what", ["take", "send", "send_given", "send_and_take", "take_and_send"])
@pytest.mark.parametrize("kind", ["plain", "keyed", "mixed"])
def test_another_thread_may_come_between_any_two_steps(kind: str, what: str) -> None:
    sends = Sends(kind)
    point, came = 0, True
    while came:
        sends.begin(f"t{point}")
        at_point = AtPoint(point, "producer", sends.beside(getattr(sends, what)), everywhere=True)
        with at_point:
            sends.send()
            sends.send()
        came = at_point.left < 0
        sends.check(f"after {point} instructions")
        point += 1
    assert point > 100
    sends.producer.close(flush=False)


@pytest.mark.parametrize("kind", ["plain", "mixed"])
def test_threads_share_a_producer(kind: str) -> None:
    sends = Sends(kind, batch_size=2_000)
    sends.begin("t")
    done = threading.Event()

    def sender() -> None:
        for number in range(2_000):
            sends.send(_GIVEN_MS if number % 100 == 7 else None)

    def taker() -> None:
        while not done.is_set():
            sends.take()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        senders = [threading.Thread(target=sender) for _ in range(3)]
        takes = threading.Thread(target=taker)
        for thread in (*senders, takes):
            thread.start()
        for thread in senders:
            thread.join()
        done.set()
        takes.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(sends.sent) == 6_001
    sends.check("at the end")
    sends.producer.close(flush=False)


def filled(count_of_records: int, *, now_ms: int = 5) -> Filling:
    filling = Filling()
    for number in range(count_of_records):
        filling.add(b"%d" % number, None, None, None, now_ms)
    return filling


def test_a_ticket_without_a_record_moves_the_later_ones_up() -> None:
    filling = filled(2)
    lost = next(filling.tickets)
    filling.add(b"2", b"k", [("h", b"x")], None, 6)
    filling.add(b"3", None, None, 9, 7)
    filling.seal()
    assert filling.values == [b"0", b"1", b"2", b"3"] and filling.lost == [lost] and filling.records == 4
    assert filling.keys == [None, None, b"k", None] and filling.headers == [(), (), [("h", b"x")], ()]
    assert filling.runs == [(0, 5), (2, 6), (3, 9)]
    assert [filling.position(ticket) for ticket in (0, 1, 3, 4)] == [0, 1, 2, 3]
    assert not filling.place(lost, b"late", None) and filling.place(3, b"2", None)


def test_a_record_finds_its_slot_as_long_as_the_batch_is_open() -> None:
    filling = filled(1)
    ticket = next(filling.tickets)
    assert filling.place(ticket, b"1", b"k") and filling.place(ticket, b"1", b"k"), "in twice is in once"
    far = 0
    while far < len(filling.slots):
        far = next(filling.tickets)
    assert filling.place(far, b"far", None)
    assert filling.records == 3
    filling.seal()
    assert filling.values == [b"0", b"1", b"far"] and filling.keys == [None, b"k", None]
    assert filling.position(far) == 2
    assert not filling.place(far + 1, b"later", None), "a ticket taken after the end"


def test_timestamps_of_the_program_are_for_their_records_alone() -> None:
    filling = Filling()
    for given, now_ms in ((7, 5), (None, 5), (None, 5), (4, 6), (None, 6), (6, 6)):
        filling.add(b"v", None, None, given, now_ms)
    filling.seal()
    assert filling.runs == [(0, 7), (1, 5), (3, 4), (4, 6)]


def test_a_batch_that_never_got_a_record_is_empty() -> None:
    filling = Filling()
    filling.seal()
    assert filling.records == 0 and not filling.values
    assert not filling.place(next(filling.tickets), b"v", None)


def test_slots_are_enough_for_every_ticket() -> None:
    filling = filled(1)
    filling.add(b"1", b"k", [("h", b"x")], None, 5)
    for number in range(2, 200):
        filling.add(b"%d" % number, b"k", [("h", b"%d" % number)] if number > 190 else None, None, 5)
    assert filling.records == 200
    beyond = 0
    while beyond < len(filling.slots) + 2:
        beyond = next(filling.tickets)
    filling.seal()
    assert filling.values == [b"%d" % number for number in range(200)] and len(filling.lost) == beyond - 199
    assert filling.keys == [None, *[b"k"] * 199]
    assert filling.headers == [(), [("h", b"x")], *[()] * 189, *[[("h", b"%d" % number)] for number in range(191, 200)]]


def test_an_end_that_ctrl_c_has_cut_short_is_made_up_for() -> None:
    filling = filled(2)
    filling.sealed = True
    assert filling.place(1, b"1", None) and filling.values == [b"0", b"1"]
    assert not filling.place(2, b"2", None)


def fill_next(filling: Filling) -> None:
    """The steps of `send`."""
    ticket = next(filling.tickets)
    with suppress(IndexError):
        filling.slots[ticket] = b"behind"
        filling.stored.append(None)


def test_a_record_behind_the_end_does_not_stand_in_for_an_empty_slot() -> None:
    """Three threads: one ends the batch, one has a ticket only, and the third one comes in while the batch ends."""
    point, came = 0, True
    while came:
        filling = filled(3)
        late = next(filling.tickets)
        at_point = AtPoint(point, "producer", partial(fill_next, filling), everywhere=True)
        with at_point:
            filling.seal()
        came = at_point.left < 0
        assert filling.values in ([b"0", b"1", b"2"], [b"0", b"1", b"2", b"behind"]), f"after {point} instructions"
        assert not filling.place(late, b"late", None), f"after {point} instructions"
        point += 1
    assert point > 50


def test_a_topic_is_there_with_all_its_partitions_or_not_at_all() -> None:
    sends = Sends("keyed")
    unknown: list[int] = []
    sends.producer._send = lambda *_: unknown.append(0)  # type: ignore[assignment, method-assign]
    point, came = 0, True
    while came:
        sends.topic = f"t{point}"
        at_point = AtPoint(point, "producer", sends.send, everywhere=True)
        with at_point:
            sends.accumulator.set_partitions(sends.topic, 2, (0, 1))
        came = at_point.left < 0
        point += 1
    assert len(unknown) == point - 1 > 50
    sends.producer.close(flush=False)


def test_records_are_counted_as_they_come() -> None:
    sends = Sends("plain")
    sends.begin("t")
    for _ in range(99):
        sends.send()
    assert sends.accumulator.topics["t"].partitions[0].open.records == 100  # type: ignore[union-attr]
    sends.producer.close(flush=False)
