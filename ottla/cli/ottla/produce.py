"""`ottla produce` and `ottla import`: write records from a file, a pipe, or the terminal.

Rules:
- A line is a record's value; with a key separator, the key comes before it. `--format json` accepts the output of
  `ottla consume --json`, so that a topic can be copied through a pipe; `jsonl`, `csv` and `parquet` make a JSON value
  from each line or row of other data, with columns as keys and headers.
- The topic must exist, unless `--create` is given: a typo must not create one. `--create` creates the topic once the
  first record has been parsed.
- The exit code is 0 only when every record is written; when it ends early, it says how many are.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from ottla.cli.client_kind import settings_of
from ottla.cli.option import F, Tool, as_json, client_settings, cluster, complete_topic, pairs
from ottla.cli.records.input import Parse, Shape, from_json, from_json_line, from_line, lines_of, records, unescaped
from ottla.cli.records.table_input import TYPES
from ottla.kernel.error import KafkaError, OttlaError
from ottla.operations.reading import never_creating
from ottla.operations.writing import InputRecord

if TYPE_CHECKING:
    from ottla.client import Producer

FORMATS = ("lines", "json", "jsonl", "csv", "parquet")
#: Formats whose lines or rows have columns: --key and a --header without = name one.
_COLUMNS = ("jsonl", "csv", "parquet")
#: Formats whose lines are values.
_WHOLE_VALUES = ("lines", "jsonl")
_PARSERS = {"lines": from_line, "json": from_json, "jsonl": from_json_line}
#: File name endings to formats.
_ENDINGS = {".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".txt": "lines"}


def writing(function: F) -> F:
    """Add the options for writing records."""
    options = (
        click.option("-k", "--key", help="Key of every record; with jsonl, csv and parquet: the column with the key."),
        click.option(
            "-H",
            "--header",
            "headers",
            metavar="NAME=VALUE|COLUMN",
            multiple=True,
            help="Header of every record; with jsonl, csv and parquet also a column. May be repeated.",
        ),
        click.option(
            "--value", "value_column", metavar="COLUMN", help="Column with the value (default: all columns as JSON)."
        ),
        click.option(
            "--type",
            "types",
            metavar="COLUMN=TYPE",
            multiple=True,
            help=f"Type of a CSV column: {', '.join(TYPES)} (default: text). May be repeated.",
        ),
        click.option("-Z", "--null", metavar="TEXT", help="Text of a value that means null (a tombstone)."),
        click.option("--delimiter", metavar="CHAR", help="Separator of CSV cells (default: a comma; for .tsv a tab)."),
        click.option("-p", "--partition", type=click.IntRange(0), help="Write to this partition only."),
        click.option(
            "-z",
            "--compression",
            type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
            default="none",
            help="Compression of batches (default: none).",
        ),
        click.option(
            "--acks",
            type=click.Choice(["all", "1", "0"]),
            default="all",
            help="Acknowledgements to wait for (default: all).",
        ),
        click.option("--create", is_flag=True, help="Create the topic if it does not exist."),
        click.option(
            "--skip", type=click.IntRange(0), default=0, help="Skip this many records, to continue where a run ended."
        ),
        click.option("-n", "--limit", type=click.IntRange(1), help="Maximum number of records to write."),
        click.option("--dry-run", is_flag=True, help="Only read and check the input."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.command(cls=Tool)
@cluster
@click.argument("topic", shell_complete=complete_topic)
@click.option("-f", "--file", "path", type=click.Path(), help="Read this file instead of stdin.")
@click.option(
    "-F", "--format", "form", type=click.Choice(FORMATS), default="lines", help="Format of the input (default: lines)."
)
@click.option(
    "-K", "--key-separator", metavar="TEXT", help=r"Separator of KEY and VALUE in a line, e.g. -K : or -K '\t'."
)
@writing
@as_json
def produce(
    bootstrap: str,
    client: tuple[str, ...],
    topic: str,
    path: str | None,
    form: str,
    key_separator: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Write records to TOPIC from the terminal, a pipe, or a file.

    \b
    ottla produce flights                      type one record per line; Ctrl-D ends
    ottla produce flights -f flights.txt -z zstd
    ottla produce orders -F jsonl -f orders.jsonl --key customer
    ottla produce orders -F csv -f orders.csv --key customer --type price=float
    ottla consume flights --json -e | ottla produce copy --create --format json
    """  # noqa: D301 - click wants the backspace itself
    separator = None if key_separator is None else unescaped(key_separator).encode()
    if separator is not None and form != "lines":
        raise click.UsageError(f"--key-separator needs --format lines, not {form}")
    if separator == b"":
        raise click.UsageError("--key-separator must not be empty")
    if separator is not None and options["key"] is not None:
        raise click.UsageError("use either --key or --key-separator, not both")
    shape = _shape(form, separator=separator, **_shape_options(options))
    _write(bootstrap, client, topic, path, form, shape, as_json=as_json, **options)


@click.command("import", cls=Tool)
@cluster
@click.argument("path", metavar="FILE", type=click.Path())
@click.argument("topic", shell_complete=complete_topic)
@click.option("-F", "--format", "form", type=click.Choice(FORMATS), help="Format of the file (default: by its suffix).")
@writing
@as_json
def import_(
    bootstrap: str,
    client: tuple[str, ...],
    path: str,
    topic: str,
    form: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Write the rows of a CSV, JSON-lines or Parquet file to TOPIC.

    \b
    ottla import orders.csv orders --key customer --type price=float --dry-run
    ottla import orders.parquet orders --create --key customer --header region
    ottla import orders.jsonl orders --skip 4000          continue after the first 4,000
    """  # noqa: D301 - click wants the backspace itself
    format_ = form or _ENDINGS.get(Path(path).suffix.lower())
    if path != "-" and not os.path.exists(path) and os.path.exists(topic):
        raise click.UsageError(f"there is no file {path}; the file comes first: ottla import {topic} {path}")
    if format_ is None:
        raise click.UsageError(f"{path}: unknown suffix; use --format {'|'.join(FORMATS)}")
    _write(
        bootstrap, client, topic, path, format_, _shape(format_, **_shape_options(options)), as_json=as_json, **options
    )


def _shape_options(options: dict[str, Any]) -> dict[str, Any]:
    names = ("key", "headers", "value_column", "types", "delimiter", "null", "partition")
    return {name: options[name] for name in names}


def _shape(
    form: str,
    *,
    key: str | None,
    headers: tuple[str, ...],
    value_column: str | None,
    types: tuple[str, ...],
    delimiter: str | None,
    null: str | None,
    partition: int | None,
    separator: bytes | None = None,
) -> Shape:
    columns = form in _COLUMNS
    if value_column is not None and not columns:
        raise click.UsageError(f"--value needs --format {', '.join(_COLUMNS[:-1])} or {_COLUMNS[-1]}, not {form}")
    if types and form != "csv":
        raise click.UsageError(f"--type needs --format csv, not {form}")
    if delimiter is not None and form != "csv":
        raise click.UsageError(f"--delimiter needs --format csv, not {form}")
    if null is not None and form not in _WHOLE_VALUES and value_column is None:
        # A whole record or row is never the text of a null.
        raise click.UsageError(f"--null needs --format {' or '.join(_WHOLE_VALUES)}, or --value COLUMN, not {form}")
    named = tuple(header for header in headers if "=" not in header) if columns else ()
    constant = pairs(tuple(header for header in headers if header not in named), "-H")
    return Shape(
        key=None if columns or key is None else key.encode(),
        separator=separator,
        headers=[(name, value.encode()) for name, value in constant.items()],
        partition=partition,
        null=None if null is None else null.encode(),
        key_column=key if columns else None,
        header_columns=named,
        value_column=value_column,
    )


def _write(
    bootstrap: str,
    client: tuple[str, ...],
    topic: str,
    path: str | None,
    form: str,
    shape: Shape,
    *,
    types: tuple[str, ...],
    delimiter: str | None,
    compression: str,
    acks: str,
    create: bool,
    skip: int,
    limit: int | None,
    dry_run: bool,
    as_json: bool,
    **_: Any,
) -> None:
    from ottla.cli.records.write import after_first_record, chosen, ensure_topic, stream, summarize

    kinds = _kinds(types)
    with _open(path) as source:
        if dry_run:
            selected = chosen(_records(source, path, form, shape, kinds, delimiter), skip, limit)
            _report_dry_run(summarize(selected), as_json=as_json)
            return
        typed = path is None and sys.stdin.isatty()
        if typed and form not in _PARSERS:
            raise click.UsageError(f"--format {form} needs a file: -f FILE")
        settings = never_creating(client_settings(bootstrap, client))
        settings.setdefault("compression.type", compression)
        if acks != "all":
            settings["acks"] = acks
        from ottla.client import Producer

        created = []

        def ensure() -> None:
            created.append(ensure_topic(bootstrap, client, topic, create=create, partition=shape.partition))

        with Producer(settings_of("producer", settings)) as producer:
            if typed:
                ensure()
                _prompt(producer, topic, _PARSERS[form](shape))
                return
            selected = chosen(_records(source, path, form, shape, kinds, delimiter), skip, limit)
            if create:  # an error in the first record leaves no topic behind
                selected = after_first_record(selected, ensure, producer.settings.max_request_size)
            else:
                ensure()
            size = None if form == "parquet" else _size(source)
            stream(producer, topic, selected, size=size, skip=skip, created=lambda: any(created), as_json=as_json)


def _kinds(types: tuple[str, ...]) -> dict[str, str]:
    kinds = pairs(types, "--type")
    for column, kind in kinds.items():
        if kind not in TYPES:
            raise click.UsageError(f"--type {column}={kind}: unknown type (expected {', '.join(TYPES)})")
    return kinds


def _records(
    source: BinaryIO, path: str | None, form: str, shape: Shape, types: dict[str, str], delimiter: str | None
) -> Iterator[InputRecord]:
    from ottla.cli.records.table_input import from_csv, from_parquet

    if form == "parquet":
        if path in (None, "-"):
            raise click.UsageError("--format parquet needs a file: -f FILE")
        return from_parquet(str(path), shape)
    if form == "csv":
        mark = unescaped(delimiter or ("\t" if str(path).lower().endswith(".tsv") else ","))
        if len(mark) != 1 or mark in '"\r\n':
            raise click.UsageError(f"--delimiter {delimiter}: expected one character that is no quote or line break")
        return from_csv(source, shape, types, mark)
    return records(lines_of(source), _PARSERS[form](shape))


def _open(path: str | None) -> BinaryIO:
    if path is None or path == "-":
        return sys.stdin.buffer
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise OttlaError(f"cannot read {path}: {error.strerror}") from error


def _size(source: BinaryIO) -> int | None:
    """Return the size of the input in bytes, if it is a regular file."""
    import os
    import stat

    status = os.fstat(source.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _report_dry_run(rehearsal: dict[str, Any], *, as_json: bool) -> None:
    from ottla.cli import screen

    if as_json:
        screen.document(rehearsal)
        return
    for record in rehearsal["first"]:
        screen.line(record)
    nulls = f", {rehearsal['tombstones']:,} of them tombstones" if rehearsal["tombstones"] else ""
    count = screen.counted(rehearsal["records"], "record")
    screen.done(f"{count} would be written ({screen.size(rehearsal['bytes'])}{nulls}); nothing was written")


def _prompt(producer: Producer, topic: str, parse: Parse) -> None:
    """Prompt for records: write each line at once and show its offset. An invalid line is only reported."""
    from ottla.cli import screen
    from ottla.operations.writing import Writer

    writer = Writer(producer, topic)
    screen.hint(f"every line is a record of {topic}; Ctrl-D to end")
    for number, line in enumerate(_typed_lines(topic), 1):
        try:
            record = parse(line, number)
            if record is not None:
                place = writer.send(record).result()
                screen.hint(f"  partition {place.partition}, offset {place.offset}")
        except (OttlaError, KafkaError) as error:
            screen.complain(error)


def _typed_lines(topic: str) -> Iterator[bytes]:
    import contextlib

    from ottla.cli import screen

    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  (line editing and history in input())
    prompt = screen.styled(f"{topic}> ", bold=True)
    while True:
        try:
            yield input(prompt).encode(errors="surrogateescape") + b"\n"
        except EOFError:
            click.echo()
            return
