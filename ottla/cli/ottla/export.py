"""`ottla export`: the records of a topic into a file of CSV, JSON lines or Parquet, or onto stdout.

Rules:
- Columns are fields of a record (`record_field`): partition, offset, timestamp, key, value and headers unless --columns
  names others. jsonl has the values alone, unless columns are named; json whole records, as `consume --json`.
- A file is written beside its place and moved there when it is whole: one that is there under its name is complete.
- An export of text that the cluster ends early says where to go on: the offsets of the partitions, for --from. What a
  file was to hold stays beside its place. Ctrl-C, a full disk and Parquet leave nothing: the last record may be torn.
"""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.amount import counted
from ottla.cli.option import Tool, as_json, client_settings, cluster, complete_topic
from ottla.cli.ottla.consume import bounds, reading, wants
from ottla.cli.records.field import Getter, getter, parsed, text
from ottla.kernel.error import KafkaError, OttlaError

if TYPE_CHECKING:
    from ottla.columns.record import ConsumerRecord

_FORMATS = ("csv", "jsonl", "json", "parquet")
_ENDINGS = {".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".parquet": "parquet"}
_COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")
#: The columns: a name, and what finds its value in a record.
_Fields = list[tuple[str, Getter]]
#: Rows of a Parquet row group.
_ROWS = 50_000


@click.command(cls=Tool)
@cluster
@click.argument("topic", shell_complete=complete_topic)
@click.argument("path", metavar="FILE", type=click.Path(), default="-")
@click.option(
    "-F", "--format", "form", type=click.Choice(_FORMATS), help="The format (default: the file's ending; json if none)."
)
@click.option("-c", "--columns", metavar="FIELD,...", help="E.g. key,value.price,timestamp (see consume --help).")
@reading
@click.option("-n", "--limit", type=click.IntRange(1), help="The most records to write.")
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@as_json
def export(
    bootstrap: str,
    client: tuple[str, ...],
    topic: str,
    path: str,
    form: str | None,
    columns: str | None,
    start: str | None,
    until: str | None,
    only: tuple[int, ...],
    grep: str | None,
    condition: str | None,
    committed: bool,
    limit: int | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write the records of TOPIC to FILE (- is stdout): all that are there, or those that are wanted.

    \b
    ottla export orders orders.parquet --columns key,value.price,timestamp
    ottla export orders orders.csv -s 2h --where 'value.price > 50'
    ottla export orders orders.jsonl           the values alone, as `ottla import` reads them
    """  # noqa: D301 - click wants the backspace itself
    from ottla.cli import screen
    from ottla.cli.records.read import chosen

    ending = "" if path == "-" else Path(path).suffix.lower()
    kind = form or (_ENDINGS.get(ending) if ending else "json")
    if path == "-" and kind == "parquet":
        raise click.UsageError("Parquet is written to a file: give FILE")
    if path != "-":
        _check_place(path, force=force)
    if kind is None:
        raise click.UsageError(f"{path}: its ending says no format; give --format {'|'.join(_FORMATS)}")
    if kind == "parquet":
        _check_parquet()
    named = tuple(filter(None, (columns or "").split(","))) or (() if kind in ("json", "jsonl") else _COLUMNS)
    if named and kind == "json":
        raise click.UsageError("json has whole records; for columns give --format jsonl, csv or parquet")
    fields = [(name.rpartition(".")[2] if name.startswith("value.") else name, getter(name)) for name in named]
    settings = client_settings(bootstrap, client)
    settings["isolation.level"] = "read_committed" if committed else "read_uncommitted"
    begins, ends = bounds(bootstrap, client, (topic,), only, start or "earliest", until, committed=committed)
    progress = _Progress(begins)
    found = progress.over(chosen(settings, begins, ends, wants(grep, condition), limit))
    if path == "-":
        _onto_stdout(found, progress, kind, fields)
    else:
        _into_file(found, progress, path, kind, fields)
    screen.told(
        as_json and path != "-",
        {"topic": topic, "file": path, "format": kind, "records": progress.count, "next": progress.places()},
        f"{screen.counted(progress.count, 'record')} of {topic} written to {'stdout' if path == '-' else path}",
    )


def _check_place(path: str, *, force: bool) -> None:
    """Can a file stand there? What is there and is no file (a device, a directory) is never replaced."""
    if os.path.isdir(path):
        raise OttlaError(f"{path} is a directory; name a file in it")
    if os.path.exists(path) and not os.path.isfile(path):
        raise OttlaError(f"{path} is no file; to write there give - and redirect: ottla export TOPIC - > {path}")
    if os.path.exists(path) and not force:
        raise OttlaError(f"{path} is there already; --force replaces it")
    if not os.path.isdir(os.path.dirname(path) or "."):
        raise OttlaError(f"{path} cannot be written: there is no directory {os.path.dirname(path)}")


def _check_parquet() -> None:
    """Before any record is read: nothing is half done then."""
    try:
        import pyarrow.parquet  # noqa: F401 - for what can be written
    except ImportError as error:
        raise OttlaError("Parquet needs pyarrow: pip install 'ottla[arrow]'") from error


class _Progress:
    """How far an export is in each partition."""

    def __init__(self, begins: dict[Any, int]) -> None:
        self._next = {each.partition: at for each, at in begins.items()}
        self.count = 0

    def over(self, records: Iterable[ConsumerRecord]) -> Iterator[ConsumerRecord]:
        for record in records:
            yield record
            self._next[record.partition] = record.offset + 1
            self.count += 1

    def told(self, where: str) -> str:
        """How many records are where, and how to read the rest."""
        verb = "is" if self.count == 1 else "are"
        return f"{counted(self.count, 'record')} {verb} {where}; go on with --from {self.places()}, into another file"

    def places(self) -> str:
        return ",".join(f"{number}:{at}" for number, at in sorted(self._next.items()))


def _onto_stdout(found: Iterator[ConsumerRecord], progress: _Progress, kind: str, fields: _Fields) -> None:
    from ottla.cli import screen

    try:
        _write_text(found, sys.stdout.buffer, kind, fields)
        sys.stdout.buffer.flush()
    except KeyboardInterrupt:
        screen.note(progress.told("written to stdout"))
        raise
    except (OttlaError, KafkaError) as error:
        raise OttlaError(f"{screen.in_words(error)}; {progress.told('written to stdout')}") from error


def _into_file(found: Iterator[ConsumerRecord], progress: _Progress, path: str, kind: str, fields: _Fields) -> None:
    """Write beside the place, then move there. Text that the cluster ends early is kept where it was written."""
    from ottla.cli import screen

    place = os.path.realpath(path)
    beside = Path(f"{place}.part-{os.getpid()}")
    kept = False
    try:
        with beside.open("wb") as file:
            if kind == "parquet":
                _write_parquet(found, file, fields)
            else:
                _write_text(found, file, kind, fields, "\t" if path.endswith(".tsv") else ",")
        beside.replace(place)
    except KeyboardInterrupt:
        screen.note(f"{path} is not written")
        raise
    except OSError as error:
        raise OttlaError(f"{path} is not written: {error.strerror or error}") from error
    except (OttlaError, KafkaError) as error:
        kept = kind != "parquet" and progress.count > 0
        told = progress.told(f"in {beside}") if kept else f"{path} is not written"
        raise OttlaError(f"{screen.in_words(error)}; {told}") from error
    finally:
        if not kept:
            beside.unlink(missing_ok=True)


def _write_text(records: Iterator[ConsumerRecord], file: Any, kind: str, fields: _Fields, delimiter: str = ",") -> None:

    from ottla.cli.records.show import json_line

    if kind == "csv":
        out = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        try:
            rows = csv.writer(out, delimiter=delimiter, lineterminator="\n")
            rows.writerow([name for name, _ in fields])
            for record in records:
                rows.writerow([_cell(get(record)) for _, get in fields])
        finally:
            out.detach()
        return
    for record in records:
        if kind == "json":
            line = json_line(record)
        elif fields:
            line = _dumped({name: get(record) for name, get in fields}) + "\n"
        else:
            line = _value_line(record)
        file.write(line.encode(errors="surrogateescape"))


def _value_line(record: ConsumerRecord) -> str:
    """The value as a line of JSON: JSON as it is, text as a string."""
    if record.value is None:
        return "null\n"
    found = parsed(record.value)
    if found is None and record.value != b"null":
        return _dumped(text(record.value)) + "\n"
    # A value that has lines of its own becomes one.
    return (record.value.decode() if b"\n" not in record.value else _dumped(found)) + "\n"


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _cell(value: Any) -> Any:
    return _dumped(value) if isinstance(value, dict | list | bool) else value


def _write_parquet(records: Iterator[ConsumerRecord], file: Any, fields: _Fields) -> None:
    from itertools import islice

    import pyarrow
    import pyarrow.parquet as parquet

    writer: Any = None
    schema: Any = None
    try:
        while True:
            rows = [{name: _column(get(record)) for name, get in fields} for record in islice(records, _ROWS)]
            if not rows and writer is not None:
                return
            try:
                if writer is None:
                    first = pyarrow.Table.from_pylist(rows) if rows else pyarrow.table({name: [] for name, _ in fields})
                    schema = _without_nulls(pyarrow, first.schema)
                    writer = parquet.ParquetWriter(file, schema, compression="zstd")
                writer.write_table(pyarrow.Table.from_pylist(rows, schema=schema))
            except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
                raise OttlaError(f"a column has values of several types: {error}; leave it out of --columns") from error
            if not rows:
                return
    finally:
        if writer is not None:
            writer.close()


def _without_nulls(pyarrow: Any, schema: Any) -> Any:
    """A column that is null in all of the first rows may be text later."""
    return pyarrow.schema(
        [pyarrow.field(each.name, pyarrow.string() if each.type == pyarrow.null() else each.type) for each in schema]
    )


def _column(value: Any) -> Any:
    return _dumped(value) if isinstance(value, dict | list) else value
