"""A batch's room, keys and headers agree, whatever path through `Producer.send` its records take."""

import itertools

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
