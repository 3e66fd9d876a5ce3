"""A batch's room, keys and headers agree, whatever path through `Producer.send` its records take."""

import itertools
import sys
from unittest.mock import MagicMock

import pytest

from ottla.client import Producer


def test_records_of_all_kinds_in_one_batch() -> None:
    producer = Producer("127.0.0.1:1")
    with producer._lock:
        producer._accumulator.set_partitions("t", 1, range(1))
    deliveries = [producer.send("t", b"first")]
    batch = deliveries[0].batch
    sizes = [batch.size]
    for key, headers in [(None, None), (b"k", None), (b"k", None), (None, None), (b"k", {"h": b"1"}), (b"k", None)]:
        deliveries.append(producer.send("t", b"value", key, headers=headers))
        sizes.append(batch.size)
    assert [after - before for before, after in itertools.pairwise(sizes)] == [29, 30, 30, 29, 44, 30]
    batch.seal()
    assert batch.keys == [None, None, b"k", b"k", None, b"k", b"k"]
    assert batch.headers == [(), (), (), (), (), [("h", b"1")], ()]
    assert [(delivery.batch, delivery.index) for delivery in deliveries] == [(batch, index) for index in range(7)]
    producer.close(flush=False)


def test_every_send_takes_the_lock_where_threads_run_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GIL two threads could get one ticket, and the record of one would be lost."""
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    producer = Producer("127.0.0.1:1")
    with producer._lock:
        producer._accumulator.set_partitions("t", 1, range(1))
    producer._lock = lock = MagicMock()
    for _ in range(5):
        producer.send("t", b"v", b"k")
    assert lock.__enter__.call_count == 5
    producer.close(flush=False)
