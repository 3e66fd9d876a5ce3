"""`ottla dump-log`: the content of log files, without a node.

Rules:
- The batches of a segment are shown as a table; with `--records`, the records. `--kafka` prints the lines of Apache's
  kafka-dump-log for all kinds of files; indexes and snapshots are always printed that way.
- A damaged file is shown up to the damage, the error describes the damage, and the exit code is 1.
- Internal topics of Kafka are recognized by the name of their directory and decoded.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.option import as_json
from ottla.kernel.error import KafkaError, OttlaError

if TYPE_CHECKING:
    from ottla.wire.batch import Batch, BatchHeader, Record

#: Rows of one table; a large file is shown in pieces, so that it appears at once.
_ROWS = 500
#: Bytes between two looks at the progress bar.
_STRIDE = 64 * 1024
_BATCHES = (".log", ".checkpoint")
_OTHERS = (".index", ".timeindex", ".txnindex", ".snapshot")
_DECODERS = {
    "__cluster_metadata-": "cluster-metadata",
    "__consumer_offsets-": "offsets",
    "__transaction_state-": "transaction-log",
    "__share_group_state-": "share-group-state",
}
Show = Callable[["Record"], tuple[str | None, str | None]]


@click.command("dump-log")
@click.argument("paths", nargs=-1, required=True, metavar="FILE|DIRECTORY...", type=click.Path(exists=True))
@click.option("-r", "--records", is_flag=True, help="Show the records instead of the batches.")
@click.option("-d", "--decoder", type=click.Choice(["text", *_DECODERS.values()]), help="Decoder for the records.")
@click.option("-n", "--limit", type=click.IntRange(1), help="Maximum number of batches or records per file.")
@click.option("--kafka", is_flag=True, help="Use the output format of Apache's kafka-dump-log.")
@as_json
def dump_log(
    paths: tuple[str, ...], records: bool, decoder: str | None, limit: int | None, kafka: bool, as_json: bool
) -> int:
    """Show the content of a segment, an index, a snapshot, or all segments in a partition's DIRECTORY."""
    whole = True
    for path in _files(paths):
        name = decoder or _decoder_of(path)
        if kafka or not path.endswith(_BATCHES):
            if as_json:
                raise click.UsageError(f"--json needs {' or '.join(_BATCHES)}, without --kafka: {path}")
            whole &= _print_lines(path, name, records, limit)
        else:
            whole &= _print_batches(path, name, records=records, limit=limit, as_json=as_json)
    return 0 if whole else 1


def _files(paths: tuple[str, ...]) -> Iterator[str]:
    for path in paths:
        if not os.path.isdir(path):
            if not path.endswith(_BATCHES + _OTHERS):
                raise OttlaError(f"{path} is not a log file (expected {', '.join(_BATCHES + _OTHERS)} or a directory)")
            yield path
            continue
        segments = sorted(str(entry) for entry in Path(path).iterdir() if entry.suffix in _BATCHES)
        # A log directory has checkpoint files too; they say nothing about its partitions.
        if partitions := sorted({segment.parent.name for segment in Path(path).glob("*-*/*.log")}):
            shown = ", ".join(partitions[:3]) + (", ..." if partitions[3:] else "")
            count = f"{len(partitions)} partition{'s'[: len(partitions) != 1]}"
            raise OttlaError(f"{path} holds {count} ({shown}); name one of them: {path}/{partitions[0]}")
        if not segments:
            raise OttlaError(f"{path} has no segments (expected the directory of one partition)")
        yield from segments


def _decoder_of(path: str) -> str:
    directory = os.path.basename(os.path.dirname(os.path.abspath(path)))
    if os.path.basename(path) == "bootstrap.checkpoint":
        return "cluster-metadata"
    return next((name for prefix, name in _DECODERS.items() if directory.startswith(prefix)), "text")


def _print_lines(path: str, decoder: str, records: bool, limit: int | None) -> bool:
    """Print a file like kafka-dump-log; returns whether nothing is wrong with it."""
    from ottla.host.disk import HostDisk
    from ottla.log.dump.dump_index import Complaints
    from ottla.log.dump.dump_log import DumpOptions, dump

    complaints = Complaints()
    chosen = None if decoder == "text" or not records else decoder
    lines = dump(HostDisk(), os.path.abspath(path), DumpOptions(print_data_log=records, decoder=chosen), complaints)
    for line in islice(lines, None if limit is None else limit + 2):
        click.echo(line)
    found = complaints.lines()
    for line in found:
        click.echo(line, err=True)
    return not found


def _print_batches(path: str, decoder: str, *, records: bool, limit: int | None, as_json: bool) -> bool:
    """Print a file's batches or records; returns whether all batches are valid."""
    from ottla.cli import screen
    from ottla.log.dump.decoder import DECODERS

    show: Show = DECODERS[None if decoder == "text" else decoder]
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not as_json:
            screen.heading(path, screen.size(size))
        if not size:
            screen.hint("the file is empty")
            return True
        # Not closed here: records are views into it.
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    walk = _Walk(memoryview(data))
    with nullcontext() if screen.on_terminal() else screen.progress(os.path.basename(path), size, "bytes") as bar:
        if bar is not None:
            walk.on_progress = lambda position: bar.update(bar.task_ids[0], completed=position, count=position)
        if as_json:
            lines = _record_objects(walk, show) if records else _batch_objects(walk)
            for line in islice(lines, limit):
                screen.line(line)
        elif records:
            _tables(_RECORD_COLUMNS, islice(_record_rows(walk, show), limit))
        else:
            _tables(_BATCH_COLUMNS, islice(map(_batch_row, _batch_objects(walk)), limit))
    if walk.damage:
        raise OttlaError(f"{path}: {walk.damage}")
    return not walk.invalid


class _Walk:
    """The batches of a file in order, and the damage found so far."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.damage = ""
        self.invalid = 0
        #: Called with the position from time to time.
        self.on_progress: Callable[[int], object] = lambda _: None

    def __iter__(self) -> Iterator[tuple[int, Batch, bool]]:
        from ottla.wire.batch import check, read

        position = reported = 0
        try:
            for batch in read(self._data):
                if position - reported >= _STRIDE:
                    reported = position
                    self.on_progress(position)
                valid = _holds(check, batch.data)
                self.invalid += not valid
                yield position, batch, valid
                position += batch.header.size
        except KafkaError as error:
            self.damage = f"at byte {position:,}: {error.message}"
            return
        left = len(self._data) - position
        if left:
            self.damage = f"{left:,} bytes after the last whole batch, at byte {position:,}"


def _holds(check: Callable[[memoryview], object], data: memoryview) -> bool:
    try:
        check(data)
    except KafkaError:
        return False
    return True


def _batch_objects(walk: _Walk) -> Iterator[dict[str, Any]]:
    for position, batch, valid in walk:
        header = batch.header
        yield {
            "base_offset": header.base_offset,
            "last_offset": header.last_offset,
            "records": header.count,
            "codec": header.codec.name.lower(),
            "size": header.size,
            "max_timestamp": header.max_timestamp,
            "leader_epoch": header.partition_leader_epoch,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "kind": _kind(header),
            "position": position,
            "crc": header.crc,
            "valid": valid,
        }


def _kind(header: BatchHeader) -> str:
    if header.is_control:
        return "control"
    return "transactional" if header.is_transactional else "data"


_BATCH_COLUMNS = ("offsets", "records", "codec", "size", "newest record", "epoch", "producer", "kind", "crc")
_RECORD_COLUMNS = ("offset", "time", "key", "value", "headers")
_NUMERIC = {"records", "size", "epoch", "offset"}
_WHOLE = {"offsets", "time"}


def _batch_row(batch: dict[str, Any]) -> list[object]:
    from ottla.cli import screen

    first, last = batch["base_offset"], batch["last_offset"]
    producer = None if batch["producer_id"] < 0 else f"{batch['producer_id']} #{batch['base_sequence']}"
    return [
        str(first) if first == last else f"{first}-{last}",
        batch["records"],
        batch["codec"],
        screen.size(batch["size"]),
        screen.instant(batch["max_timestamp"]),
        batch["leader_epoch"],
        producer,
        batch["kind"],
        screen.coloured("ok", "green") if batch["valid"] else screen.coloured("WRONG", "red bold"),
    ]


def _record_objects(walk: _Walk, show: Show) -> Iterator[dict[str, Any]]:
    for _, batch, valid in walk:
        for record in batch.records():
            key, value = (None, None) if batch.header.is_control else show(record)
            yield {
                "offset": record.offset,
                "timestamp": record.timestamp,
                "kind": _kind(batch.header),
                "key": key,
                "value": value,
                "headers": [
                    [name, None if content is None else content.decode(errors="replace")]
                    for name, content in record.headers
                ],
                "valid": valid,
            }


def _record_rows(walk: _Walk, show: Show) -> Iterator[list[object]]:
    from ottla.cli import screen

    for record in _record_objects(walk, show):
        value = screen.coloured("control", "dim") if record["kind"] == "control" else record["value"]
        headers = " ".join(f"{name}={content}" for name, content in record["headers"])
        yield [record["offset"], screen.instant(record["timestamp"]), record["key"], value, headers or None]


def _tables(titles: tuple[str, ...], rows: Iterator[list[object]]) -> None:
    from ottla.cli import screen

    columns = [screen.Column(title, numeric=title in _NUMERIC, whole=title in _WHOLE) for title in titles]
    while page := list(islice(rows, _ROWS)):
        screen.table(columns, page, sparse=True)
