"""Print a log's files line by line, like Apache Kafka's `kafka-dump-log`.

`dump` is the whole interface; it only reads. `Complaints` collects what Kafka's tool complains about.

Rules:
- A damaged file is printed up to the damage, which is named.
- With the decoder of its name, the records of `__cluster_metadata`, `__consumer_offsets`, `__transaction_state` or
  `__share_group_state` are printed as JSON with Kafka's names.
"""

from collections.abc import Iterator

from ottla.kernel.error import KafkaError
from ottla.kernel.frozen import frozen
from ottla.kernel.ports import Disk, File
from ottla.log.dump.decoder import DECODERS, Show, as_json, json_of
from ottla.log.dump.dump_index import (
    GAP,
    Complaints,
    IndexCheck,
    base_offset,
    content,
    dump_offset_index,
    dump_time_index,
    no_offset,
)
from ottla.log.path import LOG, OFFSET_INDEX, SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX
from ottla.log.producer.producer import ProducerStateEntry
from ottla.log.producer.snapshot import CorruptSnapshot, decode
from ottla.log.segment.aborted import read_entries
from ottla.wire.batch import (
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    Batch,
    BatchHeader,
    Record,
    check,
)

CHECKPOINT = ".checkpoint"
_BOOTSTRAP = "bootstrap.checkpoint"
_MAX = (1 << 31) - 1


@frozen
class DumpOptions:
    """The tool's flags."""

    print_data_log: bool = False
    deep_iteration: bool = False
    skip_record_metadata: bool = False
    verify_index_only: bool = False
    index_sanity_check: bool = False
    #: None, `cluster-metadata`, `offsets`, `transaction-log` or `share-group-state`.
    decoder: str | None = None
    #: Decodes keys and values if there is no `decoder`; None prints them as text.
    show: Show | None = None
    max_bytes: int = _MAX

    @property
    def check(self) -> IndexCheck:
        """The purpose of an index dump."""
        if self.index_sanity_check:
            return IndexCheck.SANITY
        return IndexCheck.AGAINST_LOG if self.verify_index_only else IndexCheck.SHOW


def dump(
    disk: Disk, path: str, options: DumpOptions | None = None, complaints: Complaints | None = None
) -> Iterator[str]:
    """The lines for one file. Raises CorruptIndex if an index points beyond the log or fails its sanity check."""
    options = options or DumpOptions()
    complaints = complaints or Complaints()
    yield f"Dumping {path}"
    suffix = "." + path.rpartition("/")[2].rpartition(".")[2]
    if suffix in (LOG, CHECKPOINT):
        yield from _dump_log(disk, path, options, complaints)
    elif suffix == OFFSET_INDEX:
        yield from dump_offset_index(disk, path, options.check, complaints)
    elif suffix == TIME_INDEX:
        yield from dump_time_index(disk, path, options.check, complaints)
    elif suffix == SNAPSHOT:
        yield from _dump_snapshot(disk, path, complaints)
    elif suffix == TRANSACTION_INDEX:
        for entry in read_entries(disk, path):
            yield (
                f"version: 0 producerId: {entry.producer_id} firstOffset: {entry.first_offset} "
                f"lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
            )
    else:
        complaints.add_line(f"Ignoring unknown file {path}")


# ---- batches and records


def _dump_log(disk: Disk, path: str, options: DumpOptions, complaints: Complaints) -> Iterator[str]:
    name = path.rpartition("/")[2]
    if name.endswith(LOG):
        yield f"Log starting offset: {base_offset(path)}"
    elif name == _BOOTSTRAP:
        yield "KRaft bootstrap snapshot"
    else:
        end_offset, _, epoch = name.removesuffix(CHECKPOINT).partition("-")
        if not (end_offset.isdecimal() and epoch.isdecimal()):
            raise no_offset(path, f"{5:020}-{1:010}{CHECKPOINT}")
        yield f"Snapshot end offset: {int(end_offset)}, epoch: {int(epoch)}"
    deep = options.deep_iteration or options.print_data_log or options.decoder is not None
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
                        complaints.add(GAP, path, (last, record.offset))
                    last = record.offset
                    yield _record_line(header, record, options)
            position += header.size
        if position < size and options.max_bytes == _MAX:
            yield f"Found {size - position} invalid bytes at the end of {name}"
    finally:
        file.close()


def _batches(file: File, end: int) -> Iterator[tuple[int, BatchHeader, bytes]]:
    """(position, header, bytes) of the batches up to the first impossible length."""
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
        key, value = (options.show or DECODERS[options.decoder])(record)
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


# ---- producer snapshots


def _dump_snapshot(disk: Disk, path: str, complaints: Complaints) -> Iterator[str]:
    try:
        entries = decode(content(disk, path))
    except CorruptSnapshot as error:
        complaints.add_line(str(error))
        return
    for producer_id, producer in entries:
        yield _producer_line(producer_id, producer)


def _producer_line(producer_id: int, producer: ProducerStateEntry) -> str:
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


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _time_type(header: BatchHeader) -> str:
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


def _java(value: bool) -> str:
    return "true" if value else "false"
