"""A log to be compacted, and what tests of that need over and over."""

import random
from collections.abc import Iterator

from ottla.log.cleaning.job import Cleaning, Job, plan
from ottla.log.cleaning.plan import cleanable
from ottla.log.cleaning.swap import swap
from ottla.log.log import Log, LogSettings, Origin
from ottla.sim.disk import SimDisk
from ottla.wire.batch import Batch, NewRecord, Record, build, check, read
from ottla.wire.codec import Codec

SETTINGS = LogSettings(
    segment_bytes=1000,
    segment_index_bytes=12 * 100,
    index_interval_bytes=150,
    max_message_bytes=800,
    cleanup_policy=frozenset({"compact"}),
    delete_retention_ms=1000,
    min_cleanable_dirty_ratio=0.01,
)
NOW_MS = 1_000_000


def open_log(disk: SimDisk | None = None, settings: LogSettings = SETTINGS) -> Log:
    return Log.open(disk or SimDisk(random.Random(1)), "/t-0", settings, now_ms=NOW_MS)


def put(log: Log, *pairs: tuple[str, str | None], now_ms: int = NOW_MS, codec: Codec = Codec.NONE) -> None:
    log.append(batch_of(pairs, now_ms, codec), leader_epoch=1, now_ms=now_ms)


def batch_of(pairs: tuple[tuple[str, str | None], ...], now_ms: int = NOW_MS, codec: Codec = Codec.NONE) -> bytes:
    return build([(now_ms, k.encode(), None if v is None else v.encode(), []) for k, v in pairs], codec=codec)


def transaction(log: Log, producer_id: int, *pairs: tuple[str, str | None], sequence: int = 0) -> None:
    """The data of a transaction; `_end` decides it."""
    records: list[NewRecord] = [(NOW_MS, k.encode(), None if v is None else v.encode(), []) for k, v in pairs]
    data = build(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)
    log.append(data, leader_epoch=1, now_ms=NOW_MS)


def end(log: Log, producer_id: int, *, commit: bool, epoch: int = 0) -> None:
    marker: NewRecord = (NOW_MS, bytes([0, 0, 0, int(commit)]), bytes(6), [])
    data = build([marker], producer_id=producer_id, producer_epoch=epoch, transactional=True, control=True)
    log.append(data, leader_epoch=1, now_ms=NOW_MS, origin=Origin.COORDINATOR)


def compact(log: Log, now_ms: int = NOW_MS, *, keys_max: int = 1000, buffer_bytes: int = 400) -> Job:
    """Clean all that can be, as the node does."""
    found = cleanable(log, now_ms)
    assert found is not None
    job = plan(log, found.first_dirty_offset, found.end_offset, now_ms, keys_max=keys_max, buffer_bytes=buffer_bytes)
    cleaning = Cleaning(log.disk, job, lambda _: None)
    for bases in cleaning.run():
        assert swap(log, job, bases, now_ms)
    log.cleaner_offset = cleaning.end_offset
    return job


def batches(log: Log) -> Iterator[Batch]:
    offset = log.start_offset
    while offset < log.end_offset:
        batch = next(read(log.read(offset, 1, end_offset=log.end_offset).bytes()), None)
        if batch is None:
            return
        check(batch.data)
        yield batch
        offset = batch.header.last_offset + 1


def records_of(log: Log) -> list[Record]:
    return [record for batch in batches(log) if not batch.header.is_control for record in batch.records()]


def pairs(log: Log) -> list[tuple[int, str, str | None]]:
    return [
        (each.offset, (each.key or b"").decode(), None if each.value is None else each.value.decode())
        for each in records_of(log)
    ]
