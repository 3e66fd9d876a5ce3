"""Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords, InitProducerId."""

from typing import Any

import pytest

from ottla.wire.batch import CHECKED, assemble, build
from ottla.wire.codec import Codec, compress
from tests.interop.oracle.side import Connection, Oracle, Side
from tests.interop.scene import NOW_MS


def batch(count: int = 3, start_ms: int = NOW_MS, **how: Any) -> bytes:
    return build([(start_ms + n, b"key-%d" % n, b"value-%d" % n, []) for n in range(count)], **how)


def data(name: str, records: bytes | None, partition: int = 0) -> list[dict[str, Any]]:
    return [{"name": name, "partition_data": [{"index": partition, "records": records}]}]


@pytest.mark.parametrize("version", range(3, 14))
def test_batches_are_written_or_refused(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        topic_id = side.create(name, 2, max_message_bytes="2000")

        def put(records: bytes | None, partition: int = 0, topic: str = name, acks: int = -1) -> None:
            asked = data(topic, records, partition)
            if version >= 13:
                known = topic_id if topic == name else b"\1" * 16
                asked = [{"topic_id": known, "partition_data": asked[0]["partition_data"]}]
            side.ask("Produce", version, acks=acks, timeout_ms=10_000, topic_data=asked)

        good = batch()
        put(good)
        put(good, acks=1)
        put(good, partition=1)
        put(good, partition=9)
        put(good, partition=-1)
        put(good, topic=name + "-missing")
        put(good, acks=5)
        put(good[:30] + bytes([good[30] ^ 1]) + good[31:])  # a bit of what the CRC covers
        put(good[:-5])
        put(good[:40])
        put(b"")  # null is not asked: Apache never answers it
        put(good + good)
        put(batch(200))
        put(batch(200, codec=Codec.GZIP))
        put(batch(1, start_ms=NOW_MS + 40 * 24 * 3_600_000))
        put(batch(1, start_ms=-1))
        put(good[:16] + b"\x01" + good[17:])  # magic 1 in a v2 frame
        put(batch(3, codec=Codec.ZSTD))
        put(batch(3, leader_epoch=7))
        put(batch(3, base_offset=55))
        put(batch(3, control=True))
        put(batch(3, transactional=True, producer_id=1, producer_epoch=0, base_sequence=0))

    oracle.compare(script)


def lying(records: bytes, *, count: int = 3, last_delta: int | None = None, codec: Codec = Codec.NONE) -> bytes:
    """A batch whose header says what its records do not bear out. Its CRC is right."""
    delta = count - 1 if last_delta is None else last_delta
    checked = CHECKED.pack(codec, delta, NOW_MS, NOW_MS, -1, -1, -1, count)
    return assemble(0, -1, checked, compress(codec, records))


#: One record with a key and a value, and the same as second and third of a batch.
_RECORD = b"\x10\x00\x00%b\x02k\x02v\x00"
_THREE = b"".join(_RECORD % bytes([2 * index]) for index in range(3))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD, Codec.LZ4, Codec.SNAPPY])
def test_a_header_that_its_records_do_not_bear_out(oracle: Oracle, name: str, codec: Codec) -> None:
    """What is refused without a look at every record (docs/decisions/0342)."""

    def script(side: Side) -> None:
        side.create(name, 1)
        one = _RECORD % b"\0"
        asked = [
            lying(_THREE, codec=codec),
            lying(one, count=2**31 - 1, codec=codec),
            lying(one, count=1_000_000, codec=codec),
            lying(one, count=2**31 - 1, last_delta=0, codec=codec),
            lying(one, count=1, last_delta=2**31 - 1, codec=codec),
            lying(_THREE, count=0, codec=codec),
            lying(_THREE, count=-1, codec=codec),
            lying(_THREE, last_delta=9, codec=codec),
        ]
        if codec is Codec.NONE:
            asked += [
                lying(_THREE, count=5),
                lying(b"", count=3),
                lying(b"\xffgarbage" * 20),
                lying(bytes(300)),
                lying(one * 3),
            ]
        for records in asked:
            side.ask("Produce", 9, acks=-1, timeout_ms=10_000, topic_data=data(name, records))

    oracle.compare(script)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.LZ4])
def test_a_body_that_is_not_of_its_codec(oracle: Oracle, name: str, codec: Codec) -> None:
    def script(side: Side) -> None:
        side.create(name, 1)
        for body in (_THREE, bytes(100), b"\xff" * 100):
            checked = CHECKED.pack(codec, 2, NOW_MS, NOW_MS, -1, -1, -1, 3)
            records = assemble(0, -1, checked, body)
            side.ask("Produce", 9, acks=-1, timeout_ms=10_000, topic_data=data(name, records))

    oracle.compare(script)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD, Codec.LZ4, Codec.SNAPPY])
def test_a_compacted_topic_looks_at_every_record(oracle: Oracle, name: str, codec: Codec) -> None:
    def script(side: Side) -> None:
        side.create(name, 1, cleanup_policy="compact")
        one = _RECORD % b"\0"
        for records in (
            lying(_THREE, codec=codec),
            lying(_THREE, count=5, codec=codec),
            lying(_THREE, count=2, codec=codec),
            lying(b"", count=3, codec=codec),
            lying(b"\xffgarbage" * 20, codec=codec),
            lying(bytes(300), codec=codec),
            lying(_THREE[:-2], codec=codec),
            lying(_THREE + b"\0", codec=codec),
            lying(b"\x12" + one[1:-1] + b"\x02\x01", count=1, codec=codec),
        ):
            side.ask("Produce", 9, acks=-1, timeout_ms=10_000, topic_data=data(name, records))

    oracle.compare(script)


def test_two_topics_fail_alone(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        side.create(name, 2)
        topics = [
            {
                "name": name,
                "partition_data": [{"index": 0, "records": batch()}, {"index": 5, "records": batch()}],
            },
            {"name": name + "-missing", "partition_data": [{"index": 0, "records": batch()}]},
        ]
        for version in (3, 9, 12):
            reply = side.ask("Produce", version, note=False, acks=-1, timeout_ms=10_000, topic_data=topics)
            reply.responses.sort(key=lambda one: one.name)
            for topic in reply.responses:
                topic.partition_responses.sort(key=lambda one: one.index)
            side.note(f"Produce v{version}", reply, version)

    oracle.compare(script)


def test_a_partition_named_twice_is_written_and_answered_once(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        topic_id = side.create(name, 2)
        one, two = batch(1), batch(2)

        def put(*topics: list[tuple[int, bytes]], version: int = 9, acks: int = -1) -> None:
            called = {"name": name} if version < 13 else {"topic_id": topic_id}
            parts = [[{"index": index, "records": records} for index, records in topic] for topic in topics]
            asked = [{**called, "partition_data": part} for part in parts]
            side.ask("Produce", version, acks=acks, timeout_ms=10_000, topic_data=asked)

        put([(0, one), (0, two)])
        put([(0, two)], [(0, one)], acks=1)
        put([(0, one), (1, one), (0, two)])
        put([(0, one)], [(1, one), (0, two)])
        put([(0, one), (0, one[:-1] + b"\xff")])
        put([(9, one), (9, one)])
        put([(1, one[:20]), (1, two[:30])])
        put([(0, two), (0, one)], version=13)
        asked = [{"name": name, "partitions": [{"partition_index": index, "timestamp": -1} for index in (0, 1)]}]
        side.ask("ListOffsets", 7, replica_id=-1, topics=asked)

    oracle.compare(script)


@pytest.mark.parametrize("version", [9, 11, 12])
def test_producer_fields_that_contradict_each_other(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        side.create(name, 4)
        mine = side.producer_id()

        def put(partition: int, producer_id: int, epoch: int, sequence: int, txn: bool = False, **how: Any) -> None:
            producer = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
            records = batch(1, transactional=txn, **producer, **how)
            asked: dict[str, Any] = {"acks": -1, "timeout_ms": 10_000, "topic_data": data(name, records, partition)}
            side.ask("Produce", version, transactional_id=name if txn else None, **asked)

        put(0, -1, -1, -1, txn=True)
        put(0, -1, 3, 4, txn=True)
        put(0, -2, -5, 0, txn=True)
        put(0, mine, 0, 0, txn=True, control=True)
        put(0, -1, 0, 9)
        put(0, mine, 0, -1, control=True)
        for sequence in (0, 1, 1, 5):
            put(1, mine, -1, sequence)
        put(1, mine, 0, 5)
        put(1, mine, -1, 6)
        put(2, mine, 0, -1)
        put(2, mine, -1, -1)
        put(2, mine, -5, 0)
        put(3, mine, -1, 0, txn=True)
        asked = [{"name": name, "partitions": [{"partition_index": index, "timestamp": -1} for index in range(4)]}]
        side.ask("ListOffsets", 7, replica_id=-1, isolation_level=1, topics=asked)

    oracle.compare(script)


def test_a_compacted_topic_wants_keys(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        side.create(name, cleanup_policy="compact")
        records = build([(NOW_MS, b"key", b"a", []), (NOW_MS, None, b"b", []), (NOW_MS, b"key", b"c", [])])
        for version in (7, 8, 12):
            side.ask("Produce", version, acks=-1, timeout_ms=10_000, topic_data=data(name, records))

    oracle.compare(script)


def test_append_time_is_the_servers(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        side.create(name, message_timestamp_type="LogAppendTime")
        side.ask("Produce", 9, acks=-1, timeout_ms=10_000, topic_data=data(name, batch()))

    oracle.compare(script)


def test_sequences_are_kept(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        side.create(name)
        mine = side.producer_id()

        def put(sequence: int, epoch: int = 0, producer_id: int = mine) -> None:
            records = batch(2, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
            side.ask("Produce", 9, acks=-1, timeout_ms=10_000, topic_data=data(name, records))

        put(0)
        put(0)  # a duplicate is told the offset of the first
        put(2)
        put(5)  # a gap
        put(0)  # a duplicate further back
        put(4, epoch=1)  # a new epoch begins at 0
        put(0, epoch=1)
        put(2, epoch=0)  # an old epoch
        put(7, producer_id=mine + 500)  # nobody knows this producer
        put(0, producer_id=mine + 501)

    oracle.compare(script)


@pytest.mark.parametrize("version", range(5))
def test_producer_ids_are_given(oracle: Oracle, version: int) -> None:
    def script(side: Side) -> None:
        side.producer_id()
        side.ask("InitProducerId", version, transactional_id=None, transaction_timeout_ms=60_000)
        side.ask("InitProducerId", version, transactional_id=None, transaction_timeout_ms=-1)
        side.ask("InitProducerId", version, transactional_id="", transaction_timeout_ms=60_000)

    oracle.compare(script)


class Fetcher:
    """Fetches of one topic, by name or by id as the version wants."""

    def __init__(self, side: Side, name: str, topic_id: bytes, version: int) -> None:
        self.side, self.name, self.topic_id, self.version = side, name, topic_id, version
        self.connection: Connection = side.connect()

    def topic(self, topic: str | None = None, **values: Any) -> dict[str, Any]:
        if self.version >= 13:
            return {"topic_id": self.topic_id if topic is None else b"\1" * 16, **values}
        return {"topic": self.name if topic is None else topic, **values}

    def fetch(
        self, offset: int, partition: int = 0, topic: str | None = None, partition_max: int = 1 << 20, **options: Any
    ) -> Any:
        epoch = options.pop("current_leader_epoch", -1)
        where = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": partition_max}
        if self.version >= 9:
            where["current_leader_epoch"] = epoch
        topics = [self.topic(topic, partitions=[where])]
        return self.ask(topics, **options)

    def ask(self, topics: list[dict[str, Any]], **options: Any) -> Any:
        options = {"max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1 << 20, **options}
        return self.side.ask("Fetch", self.version, on=self.connection, topics=topics, **options)


@pytest.mark.parametrize("version", range(4, 19))
def test_records_are_fetched_or_refused(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        fetcher = Fetcher(side, name, side.create(name, 2), version)
        for _ in range(4):
            side.ask("Produce", 9, acks=-1, timeout_ms=10_000, topic_data=data(name, batch(5)))
        fetch = fetcher.fetch
        fetch(0)
        fetch(7)  # the whole batch of offset 7
        fetch(20)  # the end
        fetch(21)
        fetch(-1)
        fetch(0, partition=1)
        fetch(0, partition=9)
        fetch(0, topic=name + "-missing")
        fetch(0, partition_max=1)  # one batch all the same
        fetch(0, partition_max=250)
        fetch(0, max_bytes=1)
        fetch(0, max_bytes=0)
        fetch(0, isolation_level=1)
        fetch(20, max_wait_ms=0)
        if version >= 9:
            fetch(0, current_leader_epoch=0)
            fetch(0, current_leader_epoch=3)

    oracle.compare(script)


@pytest.mark.parametrize("version", [7, 12, 13, 17, 18])
def test_fetch_sessions_tell_only_what_is_new(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        fetcher = Fetcher(side, name, side.create(name, 3), version)

        def parts(offsets: dict[int, int]) -> list[dict[str, Any]]:
            wanted = [
                {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
                for partition, offset in offsets.items()
            ]
            return [fetcher.topic(partitions=wanted)]

        def put(partition: int) -> None:
            side.ask("Produce", 9, acks=-1, timeout_ms=10_000, topic_data=data(name, batch(), partition))

        put(0)
        session = fetcher.ask(parts({0: 0, 1: 0, 2: 0}), session_id=0, session_epoch=0).session_id
        fetcher.ask(parts({0: 3}), session_id=session, session_epoch=1)
        put(1)
        fetcher.ask([], session_id=session, session_epoch=2)
        fetcher.ask(parts({1: 3}), session_id=session, session_epoch=3)
        fetcher.ask([], session_id=session, session_epoch=9)  # an epoch that was not due
        forget = [fetcher.topic(partitions=[2])]
        put(2)
        fetcher.ask([], session_id=session, session_epoch=4, forgotten_topics_data=forget)
        fetcher.ask([], session_id=session + 1, session_epoch=1)  # a session that is not there
        fetcher.ask([], session_id=session, session_epoch=-1)  # the end of the session
        fetcher.ask([], session_id=session, session_epoch=5)

    oracle.compare(script)


@pytest.mark.parametrize("version", range(1, 12))
def test_offsets_are_listed_or_refused(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        side.create(name, 2)
        for start in (100, 0, 300):
            records = batch(3, start_ms=NOW_MS + start)
            side.ask("Produce", 9, acks=-1, timeout_ms=10_000, topic_data=data(name, records))

        def at(timestamp: int, partition: int = 0, topic: str = name, **more: Any) -> None:
            asked = [{"name": topic, "partitions": [{"partition_index": partition, "timestamp": timestamp, **more}]}]
            isolation: dict[str, Any] = {"isolation_level": 1} if version >= 2 else {}
            waiting: dict[str, Any] = {"timeout_ms": 5000} if version >= 10 else {}
            side.ask("ListOffsets", version, replica_id=-1, topics=asked, **waiting)
            side.ask("ListOffsets", version, replica_id=-1, topics=asked, **isolation, **waiting)

        for timestamp in (-1, -2, NOW_MS, NOW_MS + 1, NOW_MS + 101, NOW_MS + 200, NOW_MS + 302, NOW_MS + 303):
            at(timestamp)
        for special in (-3, -4, -5, -6, -7):
            at(special)
        at(-1, partition=1)
        at(NOW_MS, partition=1)
        at(-1, partition=9)
        at(-1, topic=name + "-missing")
        if version >= 4:
            at(-1, current_leader_epoch=0)
            at(-1, current_leader_epoch=5)

    oracle.compare(script)


@pytest.mark.parametrize("version", range(2, 5))
def test_the_end_of_a_leaders_epoch(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        side.create(name)
        side.ask("Produce", 9, acks=-1, timeout_ms=10_000, topic_data=data(name, batch()))
        for epoch, current in ((0, -1), (0, 0), (1, -1), (-1, -1), (0, 5), (7, 0)):
            partition = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
            side.ask("OffsetForLeaderEpoch", version, topics=[{"topic": name, "partitions": [partition]}])
        partition = {"partition": 9, "current_leader_epoch": -1, "leader_epoch": 0}
        side.ask("OffsetForLeaderEpoch", version, topics=[{"topic": name, "partitions": [partition]}])

    oracle.compare(script)


@pytest.mark.parametrize("version", range(3))
def test_records_are_deleted_or_refused(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        side.create(name)
        for _ in range(3):
            side.ask("Produce", 9, acks=-1, timeout_ms=10_000, topic_data=data(name, batch(5)))
        for offset, partition in ((4, 0), (2, 0), (15, 0), (16, 0), (-1, 0), (-5, 0), (0, 9)):
            asked = [{"name": name, "partitions": [{"partition_index": partition, "offset": offset}]}]
            side.ask("DeleteRecords", version, topics=asked, timeout_ms=5000)
        asked = [{"name": name + "-missing", "partitions": [{"partition_index": 0, "offset": 0}]}]
        side.ask("DeleteRecords", version, topics=asked, timeout_ms=5000)
        listed = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -2}]}]
        side.ask("ListOffsets", 7, replica_id=-1, topics=listed)

    oracle.compare(script)


def test_active_producers_are_described(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        side.create(name)
        mine = side.producer_id()
        records = batch(2, producer_id=mine, producer_epoch=0, base_sequence=0)
        side.ask("Produce", 9, acks=-1, timeout_ms=10_000, topic_data=data(name, records))
        side.ask("DescribeProducers", 0, topics=[{"name": name, "partition_indexes": [0, 9]}])
        side.ask("DescribeProducers", 0, topics=[{"name": name + "-missing", "partition_indexes": [0]}])

    oracle.compare(script)
