"""`ottla export`: the records of a topic to a CSV, JSON-lines or Parquet file, or to stdout.

Rules:
- Columns are fields of a record (`ottla.cli.records.field`): partition, offset, timestamp, key, value and headers
  unless --columns names others. jsonl has only the values, unless columns are named, so a null value and the JSON
  value null are the same line; json has whole records, like `consume --json`, and tells them apart.
- A file is written under a temporary name and renamed when it is complete.
- When an error of the cluster ends a text export early, the message has the offsets to continue from, for --from, and
  the temporary file is kept. Ctrl-C, a full disk and Parquet leave no file: the last record may be torn.
"""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.amount import counted
from ottla.cli.option import Tool, as_json, client_settings, cluster, complete_topic, usage_errors
from ottla.cli.ottla.consume import bounds, reading, wants
from ottla.cli.records.field import Getter, getter, parsed, without_surrogates
from ottla.cli.records.field import as_json as with_base64
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
    "-F",
    "--format",
    "form",
    type=click.Choice(_FORMATS),
    help="Format (default: by the file's suffix; json without one).",
)
@click.option(
    "-c", "--columns", metavar="FIELD,...", help="Fields, e.g. key,value.price,timestamp (see consume --help)."
)
@reading
@click.option("-n", "--limit", type=click.IntRange(1), help="Maximum number of records to write.")
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
    """Write the records of TOPIC to FILE (- is stdout): all of them, or those that the options select.

    \b
    ottla export orders orders.parquet --columns key,value.price,timestamp
    ottla export orders orders.csv -s 2h --where 'value.price > 50'
    ottla export orders orders.jsonl           only the values, as `ottla import` reads them
    """  # noqa: D301 - click wants the backspace itself
    from ottla.cli import screen
    from ottla.cli.records.read import chosen

    ending = "" if path == "-" else Path(path).suffix.lower()
    kind = form or (_ENDINGS.get(ending) if ending else "json")
    if path == "-" and kind == "parquet":
        raise click.UsageError("Parquet cannot be written to stdout; name a FILE")
    if path != "-":
        _check_path(path, force=force)
    if kind is None:
        raise click.UsageError(f"{path}: unknown suffix; use --format {'|'.join(_FORMATS)}")
    if kind == "parquet":
        _check_parquet()
    named = tuple(filter(None, (columns or "").split(","))) or (() if kind in ("json", "jsonl") else _COLUMNS)
    if named and kind == "json":
        raise click.UsageError("json has whole records; for columns use --format jsonl, csv or parquet")
    fields = _fields(named)
    settings = client_settings(bootstrap, client)
    settings["isolation.level"] = "read_committed" if committed else "read_uncommitted"
    begins, ends = bounds(bootstrap, client, (topic,), only, start or "earliest", until, committed=committed)
    progress = _Progress(begins)
    # Closed here if the export fails: the garbage collector could run on the client's own thread.
    with closing(chosen(settings, begins, ends, wants(grep, condition), limit)) as read:
        records = progress.over(read)
        if path == "-":
            _write_to_stdout(records, progress, kind, fields)
        else:
            _write_to_file(records, progress, path, kind, fields)
    screen.report(
        as_json and path != "-",
        {"topic": topic, "file": path, "format": kind, "records": progress.count, "next": progress.places()},
        f"{screen.counted(progress.count, 'record')} of {topic} written to {'stdout' if path == '-' else path}",
    )


def _fields(named: Sequence[str]) -> _Fields:
    """Return the columns. `value.a.price` is the column price, unless another column ends the same."""
    short = [name.rpartition(".")[2] if name.startswith("value.") else name for name in named]
    counts = Counter(short)
    names = [name if counts[last] > 1 else last for name, last in zip(named, short, strict=True)]
    if doubles := [name for name, count in Counter(names).items() if count > 1]:
        raise click.UsageError(f"--columns has {doubles[0]} twice")
    with usage_errors():
        return [(name, getter(path)) for name, path in zip(names, named, strict=True)]


def _check_path(path: str, *, force: bool) -> None:
    """Check that the file can be written. Only a regular file is ever replaced, never a device or a directory."""
    if os.path.isdir(path):
        raise OttlaError(f"{path} is a directory; name a file in it")
    if os.path.exists(path) and not os.path.isfile(path):
        raise OttlaError(f"{path} is not a regular file; use - and redirect: ottla export TOPIC - > {path}")
    if os.path.exists(path) and not force:
        raise OttlaError(f"{path} already exists; use --force to replace it")
    if not os.path.isdir(os.path.dirname(path) or "."):
        raise OttlaError(f"cannot write {path}: there is no directory {os.path.dirname(path)}")


def _check_parquet() -> None:
    """Check that pyarrow is installed, before any record is read."""
    try:
        import pyarrow.parquet  # noqa: F401 - only checked
    except ImportError as error:
        raise OttlaError("Parquet needs pyarrow: pip install 'ottla[arrow]'") from error


class _Progress:
    """The position of an export in each partition."""

    def __init__(self, begins: dict[Any, int]) -> None:
        self._next = {tp.partition: at for tp, at in begins.items()}
        self.count = 0

    def over(self, records: Iterable[ConsumerRecord]) -> Iterator[ConsumerRecord]:
        for record in records:
            yield record
            self._next[record.partition] = record.offset + 1
            self.count += 1

    def summary(self, where: str) -> str:
        """Say how many records are where, and how to continue."""
        verb = "is" if self.count == 1 else "are"
        return f"{counted(self.count, 'record')} {verb} {where}; continue with --from {self.places()} and another file"

    def places(self) -> str:
        return ",".join(f"{number}:{at}" for number, at in sorted(self._next.items()))


def _write_to_stdout(records: Iterator[ConsumerRecord], progress: _Progress, kind: str, fields: _Fields) -> None:
    from ottla.cli import screen

    try:
        _write_text(records, sys.stdout.buffer, kind, fields)
        sys.stdout.buffer.flush()
    except KeyboardInterrupt:
        screen.note(progress.summary("written to stdout"))
        raise
    except (OttlaError, KafkaError) as error:
        raise OttlaError(f"{screen.in_words(error)}; {progress.summary('written to stdout')}") from error


def _write_to_file(
    records: Iterator[ConsumerRecord], progress: _Progress, path: str, kind: str, fields: _Fields
) -> None:
    """Write to a temporary file, then rename it. The file is kept when an error of the cluster ends a text export."""
    from ottla.cli import screen

    place = os.path.realpath(path)
    temporary = Path(f"{place}.part-{os.getpid()}")
    kept = False
    try:
        with temporary.open("wb") as file:
            if kind == "parquet":
                _write_parquet(records, file, fields)
            else:
                _write_text(records, file, kind, fields, "\t" if path.lower().endswith(".tsv") else ",")
        temporary.replace(place)
    except KeyboardInterrupt:
        screen.note(f"{path} was not written")
        raise
    except OSError as error:
        raise OttlaError(f"cannot write {path}: {error.strerror or error}") from error
    except (OttlaError, KafkaError) as error:
        kept = kind != "parquet" and progress.count > 0
        outcome = progress.summary(f"in {temporary}") if kept else f"{path} was not written"
        raise OttlaError(f"{screen.in_words(error)}; {outcome}") from error
    finally:
        if not kept:
            temporary.unlink(missing_ok=True)


def _write_text(records: Iterator[ConsumerRecord], file: Any, kind: str, fields: _Fields, delimiter: str = ",") -> None:

    from ottla.cli.records.show import json_line

    if kind == "csv":
        out = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="", write_through=True)
        try:
            rows = csv.writer(out, delimiter=delimiter, lineterminator="\n")
            # A carriage return outside of quotes ends a line for most readers; Python before 3.13 does not quote it.
            quoted = csv.writer(out, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL)
            rows.writerow([name for name, _ in fields])
            for record in records:
                cells = [_cell(get(record)) for _, get in fields]
                (quoted if any(isinstance(cell, str) and "\r" in cell for cell in cells) else rows).writerow(cells)
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
        # A lone surrogate is written as JSON's escape for it.
        file.write(line.encode(errors="backslashreplace"))


def _value_line(record: ConsumerRecord) -> str:
    """Format the value as a line of JSON: JSON as it is, text as a string, other bytes as {"base64": ...}."""
    if record.value is None:
        return "null\n"
    document = parsed(record.value)
    if document is None and record.value.strip(b" \t\r\n") != b"null":
        return _dumped(with_base64(record.value)) + "\n"
    # JSON over several lines becomes one line: its strings have no line break, and every other one is white space.
    line: str = record.value.decode().replace("\n", " ")
    return line + "\n"


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
                    writer = parquet.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True)
                writer.write_table(pyarrow.Table.from_pylist(rows, schema=schema))
            except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OverflowError) as error:
                what = (
                    "an integer of more than 64 bits" if isinstance(error, OverflowError) else "values of several types"
                )
                raise OttlaError(f"a column has {what}: {error}; leave it out of --columns") from error
            if not rows:
                return
    finally:
        if writer is not None:
            writer.close()


def _without_nulls(pyarrow: Any, schema: Any) -> Any:
    """Turn null columns to text: a column that is null in all of the first rows may have text later."""
    return pyarrow.schema(
        [
            pyarrow.field(field.name, pyarrow.string() if field.type == pyarrow.null() else field.type)
            for field in schema
        ]
    )


def _column(value: Any) -> Any:
    if isinstance(value, dict | list):
        value = _dumped(value)
    return without_surrogates(value) if isinstance(value, str) else value
