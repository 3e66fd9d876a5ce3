"""`ottla produce`: write records from a file, a pipe, or what you type.

Rules:
- A line is a record's value; with a key separator, the key stands before it. `--format json` takes what
  `ottla consume --json` prints, so that a topic can be copied through a pipe.
- It ends with exit code 0 only when every record is written.
"""

from __future__ import annotations

import json
import sys
import time
from base64 import b64decode
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import click

from ottla.cli.option import as_json, client_settings, cluster, complete_topic, pairs, reach
from ottla.kernel.error import OttlaError

if TYPE_CHECKING:
    from ottla.client import Producer

#: Records between two looks at the clock for the progress bar.
_STRIDE = 2_000


class _Record(NamedTuple):
    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int | None
    timestamp: int | None
    #: Bytes of input that it took, for the progress bar.
    size: int


@click.command()
@cluster
@click.argument("topic", shell_complete=complete_topic)
@click.option("-f", "--file", "path", type=click.Path(), help="Read this file instead of what is typed or piped in.")
@click.option("-F", "--format", "form", type=click.Choice(["lines", "json"]), default="lines", help="What comes in.")
@click.option("-K", "--key-separator", metavar="TEXT", help="A line is KEY, this, VALUE; e.g. -K :")
@click.option("-k", "--key", help="The key of every record.")
@click.option("-H", "--header", "headers", metavar="NAME=VALUE", multiple=True, help="A header of every record.")
@click.option("-p", "--partition", type=click.IntRange(0), help="Write to this partition only.")
@click.option("-Z", "--null", "null", metavar="TEXT", help="A value that is this text is null (a tombstone).")
@click.option(
    "-z",
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    help="How batches are compressed.",
)
@click.option("--acks", type=click.Choice(["all", "1", "0"]), default="all", help="Who must have a record.")
@as_json
def produce(
    bootstrap: str,
    client: tuple[str, ...],
    topic: str,
    path: str | None,
    form: str,
    key_separator: str | None,
    key: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    null: str | None,
    compression: str,
    acks: str,
    as_json: bool,
) -> None:
    """Write records to TOPIC: lines that you type, a pipe, or a file.

    \b
    ottla produce flights                      type, Enter after each; Ctrl-D ends
    ottla produce flights -f flights.csv -z zstd
    ottla consume flights --json -e | ottla produce copy --format json
    """  # noqa: D301 - click wants the backspace itself
    settings = client_settings(bootstrap, client)
    settings.setdefault("compression.type", compression)
    if acks != "all":
        settings["acks"] = acks
    shared = _Shared(key, key_separator, list(pairs(headers, "-H").items()), partition, null)
    reach(bootstrap, settings)
    from ottla.client import Producer

    with Producer(settings) as producer:
        if path is None and sys.stdin.isatty():
            _converse(producer, topic, shared)
            return
        with _open(path) as stream:
            records = shared.from_json(stream) if form == "json" else shared.from_lines(stream)
            _stream(producer, topic, records, _size(stream), as_json=as_json)


def _open(path: str | None) -> BinaryIO:
    if path is None or path == "-":
        return sys.stdin.buffer
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise OttlaError(f"{path} cannot be read: {error.strerror}") from error


def _size(stream: BinaryIO) -> int | None:
    """Bytes to come, when that can be known."""
    import os
    import stat

    status = os.fstat(stream.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None


class _Shared:
    """What all records of a run have in common, and how input becomes records."""

    def __init__(
        self,
        key: str | None,
        separator: str | None,
        headers: list[tuple[str, str]],
        partition: int | None,
        null: str | None,
    ) -> None:
        self.key = None if key is None else key.encode()
        self.separator = None if separator is None else separator.encode()
        self.headers: list[tuple[str, bytes | None]] = [(name, value.encode()) for name, value in headers]
        self.partition = partition
        self.null = None if null is None else null.encode()

    def from_lines(self, lines: Iterable[bytes]) -> Iterator[_Record]:
        """One record a line."""
        for number, line in enumerate(lines, 1):
            value: bytes | None = line.removesuffix(b"\n").removesuffix(b"\r")
            key = self.key
            if self.separator is not None and value is not None:
                before, found, after = value.partition(self.separator)
                if not found:
                    raise OttlaError(f"line {number} has no key separator {self.separator.decode()!r}")
                key, value = before, after
            if value == self.null:
                value = None
            yield _Record(value, key, self.headers, self.partition, None, len(line))

    def from_json(self, lines: Iterable[bytes]) -> Iterator[_Record]:
        """One JSON object a line, as `ottla consume --json` prints them."""
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                found = json.loads(line)
                if not isinstance(found, dict):
                    raise TypeError("not an object")
                own = [(str(name), _bytes(value)) for name, value in found.get("headers") or ()]
                key = self.key if self.key is not None else _bytes(found.get("key"))
                value = _bytes(found.get("value"))
            except (ValueError, TypeError) as error:
                raise OttlaError(
                    f'line {number} is not a record in JSON ({error}): it takes {{"key": ..., "value": ..., "headers": '
                    f"[[name, value], ...]}}"
                ) from error
            yield _Record(value, key, self.headers + own, self.partition, found.get("timestamp"), len(line))


def _bytes(value: Any) -> bytes | None:
    """Text as UTF-8, {"base64": ...} as its bytes, any other JSON as its text."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"}:
        return b64decode(value["base64"], validate=True)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _send(producer: Producer, topic: str, record: _Record) -> Any:
    return producer.send(
        topic,
        record.value,
        record.key,
        partition=record.partition,
        headers=record.headers or None,
        timestamp=record.timestamp,
    )


def _stream(producer: Producer, topic: str, records: Iterator[_Record], size: int | None, *, as_json: bool) -> None:
    from ottla.cli import screen

    began = time.monotonic()
    count = read = 0
    with screen.progress(topic, size) as bar:
        task = bar.task_ids[0]
        for record in records:
            _send(producer, topic, record)
            count += 1
            read += record.size
            if count % _STRIDE == 0:
                rate = count / max(time.monotonic() - began, 1e-9)
                bar.update(task, completed=read, count=count, rate=f"{rate:,.0f}/s")
        producer.flush()
    seconds = max(time.monotonic() - began, 1e-9)
    if as_json:
        screen.document({"topic": topic, "records": count, "bytes": read, "seconds": round(seconds, 3)})
        return
    many = "record" if count == 1 else "records"
    screen.done(f"{count:,} {many} written to {topic} in {seconds:.2f} s ({count / seconds:,.0f}/s)")


def _converse(producer: Producer, topic: str, shared: _Shared) -> None:
    """A prompt: every line is written at once, and its place is shown."""
    from ottla.cli import screen

    screen.hint(f"every line is a record of {topic}; Ctrl-D ends")
    for record in shared.from_lines(_typed(topic)):
        place = _send(producer, topic, record).result()
        screen.hint(f"  partition {place.partition}, offset {place.offset}")


def _typed(topic: str) -> Iterator[bytes]:
    import contextlib

    from ottla.cli import screen

    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  (line editing and history in input())
    prompt = screen.styled(f"{topic}> ", bold=True)
    while True:
        try:
            yield input(prompt).encode() + b"\n"
        except EOFError:
            click.echo()
            return
