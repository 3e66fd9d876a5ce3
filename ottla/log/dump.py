"""What is in a log's files, line by line, as Apache Kafka's `kafka-dump-log` shows it.

`dump` is the whole interface; it reads and never writes. What Kafka's tool prints as errors follows at the end.

Rules:
- A file that is damaged is shown up to the damage, which is named.
- The records of `__cluster_metadata`, `__consumer_offsets`, `__transaction_state` and `__share_group_state` are shown
  as JSON with Kafka's names when the decoder of that name is asked for.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator

from ottla.kernel.error import KafkaError
from ottla.kernel.port import Disk, File
from ottla.kernel.value import frozen
from ottla.log.aborted import read_entries
from ottla.log.decoder import DECODERS, as_json, json_of
from ottla.log.path import LOG, OFFSET_INDEX, SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX
from ottla.log.producer import Producer
from ottla.log.snapshot import CorruptSnapshot, decode
from ottla.wire.batch import (
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    Batch,
    BatchHeader,
    Record,
    check,
)

CHECKPOINT = ".checkpoint"
_BOOTSTRAP = "bootstrap.checkpoint"
_MAX = (1 << 31) - 1
_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


@frozen
class DumpOptions:
    """The tool's flags by their names."""

    print_data_log: bool = False
    deep_iteration: bool = False
    skip_record_metadata: bool = False
    verify_index_only: bool = False
    index_sanity_check: bool = False
    #: None, `cluster-metadata`, `offsets`, `transaction-log` or `share-group-state`.
    decoder: str | None = None
    max_bytes: int = _MAX


def dump(disk: Disk, path: str, options: DumpOptions | None = None) -> Iterator[str]:
    """The lines for one file."""
    options = options or DumpOptions()
    yield f"Dumping {path}"
    suffix = "." + path.rpartition("/")[2].rpartition(".")[2]
    if suffix in (LOG, CHECKPOINT):
        yield from _dump_log(disk, path, options)
    elif suffix == OFFSET_INDEX:
        yield from _dump_offset_index(disk, path, options)
    elif suffix == TIME_INDEX:
        yield from _dump_time_index(disk, path, options)
    elif suffix == SNAPSHOT:
        yield from _dump_snapshot(disk, path)
    elif suffix == TRANSACTION_INDEX:
        for entry in read_entries(disk, path):
            yield (
                f"version: 0 producerId: {entry.producer_id} firstOffset: {entry.first_offset} "
                f"lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
            )
    else:
        yield f"Ignoring unknown file {path}"


# ---- batches and records


def _dump_log(disk: Disk, path: str, options: DumpOptions) -> Iterator[str]:
    name = path.rpartition("/")[2]
    if name.endswith(LOG):
        yield f"Log starting offset: {int(name.partition('.')[0])}"
    elif name == _BOOTSTRAP:
        yield "KRaft bootstrap snapshot"
    else:
        end_offset, _, epoch = name.removesuffix(CHECKPOINT).partition("-")
        yield f"Snapshot end offset: {int(end_offset)}, epoch: {int(epoch)}"
    deep = options.deep_iteration or options.print_data_log or options.decoder is not None
    gaps: list[tuple[int, int]] = []
    last = -1
    file = disk.open(path)
    try:
        size = file.size()
        position = 0
        for position, header, data in _batches(file, min(size, options.max_bytes)):
            valid = _is_valid(data)
            yield _batch_line(position, header, valid)
            if deep:
                try:
                    records = Batch(header, memoryview(data)).records()
                except KafkaError as error:
                    yield f"| the records do not read: {error.message}"
                    records = []
                for record in records:
                    if record.offset != last + 1:
                        gaps.append((last, record.offset))
                    last = record.offset
                    yield _record_line(header, record, options)
            position += header.size
        if position < size and options.max_bytes == _MAX:
            yield f"Found {size - position} invalid bytes at the end of {name}"
    finally:
        file.close()
    if gaps:
        yield f"Non-consecutive offsets in {path}"
        for before, after in gaps:
            yield f"  {before} is followed by {after}"


def _batches(file: File, end: int) -> Iterator[tuple[int, BatchHeader, bytes]]:
    """(position, header, bytes) of the batches for as long as the lengths make sense."""
    position = 0
    while position + HEADER_BYTES <= end:
        header = BatchHeader._make(HEADER.unpack(file.read(HEADER_BYTES, position)))
        if header.magic != MAGIC or header.size < HEADER_BYTES or position + header.size > end:
            return
        yield position, header, file.read(header.size, position)
        position += header.size


def _is_valid(data: bytes) -> bool:
    try:
        check(data)
    except KafkaError:
        return False
    return True


def _batch_line(position: int, header: BatchHeader, valid: bool) -> str:
    horizon = f"OptionalLong[{header.base_timestamp}]" if header.attributes & DELETE_HORIZON else "OptionalLong.empty"
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.count} "
        f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} "
        f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
        f"partitionLeaderEpoch: {header.partition_leader_epoch} "
        f"isTransactional: {_java(header.is_transactional)} isControl: {_java(header.is_control)} "
        f"deleteHorizonMs: {horizon} position: {position} {_time_type(header)}: {header.max_timestamp} "
        f"size: {header.size} magic: {header.magic} compresscodec: {header.codec.name.lower()} "
        f"crc: {header.crc} isvalid: {_java(valid)}"
    )


def _record_line(header: BatchHeader, record: Record, options: DumpOptions) -> str:
    parts = []
    if not options.skip_record_metadata:
        sequence = header.base_sequence
        if sequence >= 0:
            sequence = (sequence + record.offset - header.base_offset) & _MAX
        parts.append(
            f"| offset: {record.offset} {_time_type(header)}: {record.timestamp} "
            f"keySize: {_size(record.key)} valueSize: {_size(record.value)} sequence: {sequence} "
            f"headerKeys: [{','.join(name for name, _ in record.headers)}]"
        )
        if header.is_control:
            parts.append(_control(record))
    if (options.print_data_log or options.decoder is not None) and not header.is_control:
        key, value = DECODERS[options.decoder](record)
        lead = "|" if options.skip_record_metadata else ""
        content = []
        if key is not None:
            content.append(f"key: {key}")
        if value is not None:
            content.append(f"payload: {value}")
        if content:
            parts.append(f"{lead} {' '.join(content)}" if lead else " ".join(content))
    return " ".join(parts)


def _control(record: Record) -> str:
    from ottla.wire.record import control
    from ottla.wire.type import Malformed

    try:
        kind, message = control.parse(record.key or b"", record.value or b"")
    except Malformed as error:
        return f"controlType: UNKNOWN ({error})"
    types = control.ControlRecordType
    if kind in (types.ABORT, types.COMMIT):
        return f"endTxnMarker: {kind.name} coordinatorEpoch: {message.coordinator_epoch}"
    name = {
        types.LEADER_CHANGE: "LeaderChange:",
        types.SNAPSHOT_HEADER: "SnapshotHeader",
        types.SNAPSHOT_FOOTER: "SnapshotFooter",
        types.KRAFT_VERSION: "KRaftVersion",
        types.KRAFT_VOTERS: "KRaftVoters",
    }[kind]
    return f"{name} {as_json(json_of(message, message.version))}"


# ---- indexes


def _dump_offset_index(disk: Disk, path: str, options: DumpOptions) -> Iterator[str]:
    base = int(path.rpartition("/")[2].partition(".")[0])
    entries = [(base + offset, position) for offset, position in _entries(disk, path, _OFFSET_ENTRY)]
    if not entries:
        yield f"{path} is empty."
        return
    if options.index_sanity_check:
        yield _sanity(disk, path, entries[-1][0] > base, _OFFSET_ENTRY)
        return
    log = disk.open(path.removesuffix(OFFSET_INDEX) + LOG)
    wrong = []
    try:
        for offset, position in entries:
            found = next(iter(_batches_from(log, position)), None)
            if found is None or found.last_offset != offset:
                wrong.append((offset, -1 if found is None else found.last_offset))
            if not options.verify_index_only:
                yield f"offset: {offset} position: {position}"
    finally:
        log.close()
    if wrong:
        yield f"Mismatches in :{path}"
        for offset, at in reversed(wrong):
            yield f"  Index offset: {offset}, log offset: {at}"


def _dump_time_index(disk: Disk, path: str, options: DumpOptions) -> Iterator[str]:
    base = int(path.rpartition("/")[2].partition(".")[0])
    entries = [(timestamp, base + offset) for timestamp, offset in _entries(disk, path, _TIME_ENTRY)]
    if options.index_sanity_check:
        yield _sanity(disk, path, not entries or entries[-1][0] >= entries[0][0], _TIME_ENTRY)
        return
    index_path = path.removesuffix(TIME_INDEX) + OFFSET_INDEX
    positions = [(base + offset, position) for offset, position in _entries(disk, index_path, _OFFSET_ENTRY)]
    log = disk.open(path.removesuffix(TIME_INDEX) + LOG)
    mismatched, unordered, missing = [], [], []
    before = -1
    try:
        for timestamp, offset in entries:
            slot = bisect_right(positions, (offset, _MAX)) - 1
            start = positions[slot][1] if slot >= 0 else 0
            found = next((each for each in _batches_from(log, start) if each.last_offset >= offset), None)
            if found is None or found.last_offset != offset:
                missing.append((offset, -1 if found is None else found.last_offset))
            else:
                if found.max_timestamp != timestamp:
                    mismatched.append((timestamp, found.max_timestamp))
                if before >= timestamp:
                    unordered.append((timestamp, before))
            if not options.verify_index_only:
                yield f"timestamp: {timestamp} offset: {offset}"
            before = timestamp
    finally:
        log.close()
    yield from _errors(f"Found timestamp mismatch in :{path}", "  Index timestamp: {}, log timestamp: {}", mismatched)
    yield from _errors(
        f"Found out of order timestamp in :{path}", "  Index timestamp: {}, Previously indexed timestamp: {}", unordered
    )
    yield from _errors(
        f"The following indexed offsets are not found in :{path}", "Indexed offset: {}, found log offset: {}", missing
    )


def _errors(head: str, line: str, found: list[tuple[int, int]]) -> Iterator[str]:
    if found:
        yield head
        for pair in found:
            yield line.format(*pair)


def _entries(disk: Disk, path: str, entry: struct.Struct) -> list[tuple[int, int]]:
    """The entries as they stand, without the zeros that follow those of an active segment's preallocated file."""
    data = _content(disk, path)
    found: list[tuple[int, int]] = []
    for pair in entry.iter_unpack(data[: len(data) // entry.size * entry.size]):
        if pair == (0, 0) or (found and pair[entry is _TIME_ENTRY] == 0):
            break
        found.append(pair)
    return found


def _sanity(disk: Disk, path: str, ordered: bool, entry: struct.Struct) -> str:
    whole = len(_content(disk, path)) % entry.size == 0
    return f"{path} passed sanity check." if ordered and whole else f"{path} failed sanity check."


def _batches_from(log: File, position: int) -> Iterator[BatchHeader]:
    size = log.size()
    while position + HEADER_BYTES <= size:
        header = BatchHeader._make(HEADER.unpack(log.read(HEADER_BYTES, position)))
        if header.length < HEADER_BYTES - LENGTH_END:
            return
        yield header
        position += header.size


# ---- producer snapshots


def _dump_snapshot(disk: Disk, path: str) -> Iterator[str]:
    try:
        entries = decode(_content(disk, path))
    except CorruptSnapshot as error:
        yield str(error)
        return
    for producer_id, producer in entries:
        yield _producer_line(producer_id, producer)


def _producer_line(producer_id: int, producer: Producer) -> str:
    start = producer.transaction_start
    line = (
        f"producerId: {producer_id} producerEpoch: {producer.epoch} coordinatorEpoch: {producer.coordinator_epoch} "
        f"currentTxnFirstOffset: {f'OptionalLong[{start}]' if start >= 0 else 'OptionalLong.empty'} "
        f"lastTimestamp: {producer.last_timestamp}"
    )
    for sent in producer.sent[:1]:
        line += (
            f" firstSequence: {sent.first_sequence} lastSequence: {sent.last_sequence} "
            f"lastOffset: {sent.last_offset} offsetDelta: {sent.offset_delta} timestamp: {sent.timestamp}"
        )
    return line


def _content(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    try:
        return file.read(file.size(), 0)
    finally:
        file.close()


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _time_type(header: BatchHeader) -> str:
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


def _java(value: bool) -> str:
    return "true" if value else "false"
