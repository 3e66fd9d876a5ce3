"""The cleaning of one log: read the dirty section into a map, then rewrite each group of segments.

A job runs in a process of its own, over segments that no longer change. It writes and syncs `.cleaned` files; the
caller puts them in place (`swap`) before it asks for the next group, so that the extra space is at most one segment.

Rules:
- A job reads only the segments that it names. If a file is missing, the job fails and the log is unchanged.
- The CRC of every batch is checked before its records are read.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.named import NamedTuple
from ottla.kernel.ports import Buffer, Disk, File
from ottla.log.cleaning.batch import BatchRetention, body_of, clean_batch, raw_records
from ottla.log.cleaning.offset_map import OffsetMap
from ottla.log.cleaning.plan import CleaningSource, group
from ottla.log.cleaning.transaction import CleanedTransactions
from ottla.log.path import CLEANED, LOG, offset_name
from ottla.log.segment.aborted import AbortedTransaction
from ottla.log.segment.segment import Segment
from ottla.log.setting import LogSettings
from ottla.wire.batch import LENGTH_END, PREFIX, BatchHeader, check, headers

if TYPE_CHECKING:
    from ottla.log.log import Log


class Job(NamedTuple):
    """The input of a cleaning. The loop creates it; it can be sent as JSON."""

    directory: str
    #: The log's generation: the job is valid until a truncation.
    generation: int
    #: All segments below `end_offset`, from the first on.
    sources: list[CleaningSource]
    first_dirty_offset: int
    end_offset: int
    aborted: list[AbortedTransaction]
    #: (producer id, last offset of its last data batch or -1, epoch) of the producers that may still write.
    producers: list[tuple[int, int, int]]
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    #: The most keys that the map may hold.
    keys_max: int
    #: The size of a read and of a write.
    buffer_bytes: int

    @classmethod
    def of_json(cls, fields: dict[str, Any]) -> "Job":
        """The job from the fields that `_asdict` and JSON made of it."""
        job = cls(**fields)
        return job._replace(
            sources=[CleaningSource(*each) for each in job.sources],
            aborted=[AbortedTransaction(*each) for each in job.aborted],
            producers=[(each[0], each[1], each[2]) for each in job.producers],
        )


def plan(log: "Log", first_dirty_offset: int, end_offset: int, now_ms: int, *, keys_max: int, buffer_bytes: int) -> Job:
    """The job that cleans a log, in its present state, up to `end_offset`."""
    settings = log.settings
    segments = [segment for segment in log.segments[:-1] if segment.base_offset < end_offset]
    return Job(
        directory=log.path,
        generation=log.generation,
        sources=[
            CleaningSource(each.base_offset, each.size, each.offset_index.file_bytes, each.time_index.file_bytes)
            for each in segments
        ],
        first_dirty_offset=first_dirty_offset,
        end_offset=end_offset,
        aborted=log.aborted(log.bases[0], end_offset),
        producers=[
            (producer_id, each.sent[-1].last_offset if each.sent else -1, each.epoch)
            for producer_id, each in log.producers.by_id.items()
        ],
        now_ms=now_ms,
        delete_retention_ms=settings.delete_retention_ms,
        segment_bytes=settings.segment_bytes,
        segment_index_bytes=settings.segment_index_bytes,
        index_interval_bytes=settings.index_interval_bytes,
        keys_max=keys_max,
        buffer_bytes=buffer_bytes,
    )


class Cleaning:
    """A running job. It calls `pace`, which may block, with the number of bytes after each read and write."""

    def __init__(self, disk: Disk, job: Job, pace: Callable[[int], None]) -> None:
        self._disk = disk
        self._job = job
        self._pace = pace
        self._latest = OffsetMap(job.keys_max)
        self._last_offsets = {producer_id: (last, epoch) for producer_id, last, epoch in job.producers}
        self._settings = LogSettings(
            segment_index_bytes=job.segment_index_bytes, index_interval_bytes=job.index_interval_bytes
        )
        #: Where the next cleaning begins once this one is done.
        self.end_offset = job.first_dirty_offset
        self.bytes_read = 0
        self.bytes_written = 0

    def run(self) -> Iterator[list[int]]:
        """The base offsets of each group when its `.cleaned` segment, named by the first of them, is ready."""
        self._read_keys()
        job = self._job
        sources = [source for source in job.sources if source.base_offset < self.end_offset]
        groups = group(
            sources, job.end_offset, segment_bytes=job.segment_bytes, segment_index_bytes=job.segment_index_bytes
        )
        transactions = CleanedTransactions(job.aborted)
        for sources in groups:
            self._write(sources, transactions)
            yield [source.base_offset for source in sources]

    # ---- the map

    def _read_keys(self) -> None:
        job, latest = self._job, self._latest
        # Without those that ended before: their markers are not read here, and they would seem to go on.
        transactions = CleanedTransactions(each for each in job.aborted if each.last_offset >= job.first_dirty_offset)
        slot = max(
            (slot for slot, source in enumerate(job.sources) if source.base_offset <= job.first_dirty_offset), default=0
        )
        for header, data in self._batches(job.sources[slot:]):
            if header.last_offset < job.first_dirty_offset:
                continue
            if latest.is_full:
                break
            if header.is_control:
                transactions.ended(header, data)
            elif not transactions.is_aborted(header):
                for record in raw_records(body_of(header, data), header.count):
                    offset = header.base_offset + record.offset_delta
                    if record.key is not None and offset >= job.first_dirty_offset:
                        latest.put(record.key, offset)
            latest.latest_offset = header.last_offset
        else:
            # The section is read to its end, even if the last offsets are missing.
            latest.latest_offset = job.end_offset - 1
        self.end_offset = latest.latest_offset + 1

    # ---- the segments

    def _write(self, sources: list[CleaningSource], transactions: CleanedTransactions) -> None:
        job = self._job
        target = Segment.create(
            self._disk, job.directory, sources[0].base_offset, self._settings, job.now_ms, suffix=CLEANED
        )
        waiting: list[tuple[BatchHeader, Buffer]] = []
        size = 0
        for header, data in self._batches(sources):
            kept = self._clean(header, data, target, transactions)
            if kept is None:
                continue
            # Copy the batch so that it does not keep the whole chunk it was read with in memory.
            waiting.append((header, bytes(kept)))
            size += len(kept)
            if size >= job.buffer_bytes:
                self._flush(target, waiting)
                size = 0
        self._flush(target, waiting)
        target.deactivate()
        target.sync()
        target.sync_indexes()
        target.close()

    def _clean(
        self, header: BatchHeader, data: Buffer, target: Segment, transactions: CleanedTransactions
    ) -> Buffer | None:
        job = self._job
        is_empty_marker = False
        if header.is_control:
            is_empty_marker, aborted = transactions.ended(header, data)
            if aborted is not None:
                target.transaction_index.append(aborted)
            discards = is_empty_marker and header.has_delete_horizon and header.base_timestamp <= job.now_ms
        else:
            discards = transactions.is_aborted(header)
        keeps_empty = self._is_last_of_producer(header) or header.last_offset + 1 == job.end_offset
        retention = BatchRetention(discards, keeps_empty, is_empty_marker)
        return clean_batch(header, data, self._latest, retention, job.now_ms, job.delete_retention_ms)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._last_offsets.get(header.producer_id)
        if last is None:
            return False
        last_offset, epoch = last
        if last_offset >= 0:
            return header.last_offset == last_offset
        # Only a marker is left of this producer; its epoch identifies it.
        return header.is_control and header.producer_epoch == epoch

    def _flush(self, target: Segment, waiting: list[tuple[BatchHeader, Buffer]]) -> None:
        if not waiting:
            return
        position = target.size
        data = b"".join(kept for _, kept in waiting)
        target.file.write(data, position)
        for header, kept in waiting:
            # The maximum timestamp may have changed with the dropped records.
            max_timestamp = check(kept).max_timestamp
            target.written(position, len(kept), header.base_offset, header.last_offset, max_timestamp)
            position += len(kept)
        waiting.clear()
        self.bytes_written += len(data)
        self._pace(len(data))

    # ---- reading

    def _batches(self, sources: list[CleaningSource]) -> Iterator[tuple[BatchHeader, memoryview]]:
        for source in sources:
            path = f"{self._job.directory}/{offset_name(source.base_offset, LOG)}"
            file = self._disk.open(path)
            try:
                yield from self._batches_of(file, path, source.size)
            finally:
                file.close()

    def _batches_of(self, file: File, path: str, end: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        position = 0
        chunk_bytes = self._job.buffer_bytes
        while position < end:
            view = memoryview(file.read(min(chunk_bytes, end - position), position))
            self.bytes_read += len(view)
            self._pace(len(view))
            whole = 0
            for at, header in headers(view):
                check(view, at)
                yield header, view[at : at + header.size]
                whole = at + header.size
            if whole:
                position += whole
                chunk_bytes = self._job.buffer_bytes
                continue
            # Not one whole batch: it is larger than the buffer, or damaged.
            needed = PREFIX.unpack_from(view)[1] + LENGTH_END if len(view) >= PREFIX.size else 0
            if not chunk_bytes < needed <= end - position:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{path} has no whole batch at {position}")
            chunk_bytes = needed
