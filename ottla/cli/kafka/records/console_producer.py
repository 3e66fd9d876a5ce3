"""kafka-console-producer: write each line of stdin as a record."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ottla.cli.kafka.program.error import caused
from ottla.cli.kafka.program.match import pattern
from ottla.cli.kafka.program.option import Given, Option, Usage, int32, int64, key_values, require
from ottla.cli.kafka.program.tool import Failed, check_addresses, command, load, settings_for, tell
from ottla.kernel.named import NamedTuple

if TYPE_CHECKING:
    from ottla.client import Producer

_READER = "org.apache.kafka.tools.LineMessageReader"

OPTIONS = (
    Option("topic", "REQUIRED: topic to write to.", "topic"),
    Option("bootstrap-server", "REQUIRED: brokers to connect to first, HOST:PORT,HOST:PORT.", "server to connect to"),
    Option("sync", "Wait for each record before reading the next."),
    Option(
        "compression-codec",
        "Compression: none, gzip, snappy, lz4 or zstd; gzip without a value.",
        "compression-codec",
        optional=True,
    ),
    Option("batch-size", "Bytes of a batch (batch.size).", "size", int32, default=16384),
    Option("message-send-max-retries", "Number of retries (retries).", "", int32, default=3),
    Option("retry-backoff-ms", "Pause before a retry (retry.backoff.ms).", "", int64, default=100),
    Option("timeout", "How long a batch waits for more records (linger.ms).", "timeout_ms", int64, default=1000),
    Option("request-required-acks", "Acknowledgements to wait for (acks).", "request required acks", default="-1"),
    Option("request-timeout-ms", "Timeout of a request (request.timeout.ms).", "request timeout ms", int32, 1500),
    Option(
        "metadata-expiry-ms",
        "Maximum age of metadata (metadata.max.age.ms).",
        "metadata expiration interval",
        int64,
        300000,
    ),
    Option("max-block-ms", "How long sending may block (max.block.ms).", "max block on send", int64, default=60000),
    Option(
        "max-memory-bytes", "Bytes of records that may wait (buffer.memory).", "total memory in bytes", int64, 33554432
    ),
    Option("max-partition-memory-bytes", "Deprecated: use --batch-size.", "bytes per partition", int32, 16384),
    Option("line-reader", "Reader of lines; only Kafka's default is supported.", "reader_class", default=_READER),
    Option("socket-buffer-size", "Ignored.", "size", int32, default=102400),
    Option("property", "Deprecated: use --reader-property.", "prop"),
    Option(
        "reader-property",
        "Property of the reader; may be repeated: parse.key, parse.headers, ignore.error, key.separator, "
        "headers.delimiter, headers.separator, headers.key.separator, null.marker.",
        "prop",
    ),
    Option("reader-config", "Properties file with such properties.", "config file"),
    Option("producer-property", "Deprecated: use --command-property.", "producer_prop"),
    Option("command-property", "Setting of the producer; may be repeated.", "producer_prop"),
    Option("producer.config", "Deprecated: use --command-config.", "config file"),
    Option("command-config", "Properties file for the producer.", "config file"),
)
#: Setting -> the options that stand for it; the later wins when it is given.
_SETTINGS = {
    "linger.ms": ("timeout",),
    "acks": ("request-required-acks",),
    "request.timeout.ms": ("request-timeout-ms",),
    "retries": ("message-send-max-retries",),
    "retry.backoff.ms": ("retry-backoff-ms",),
    "buffer.memory": ("max-memory-bytes",),
    "batch.size": ("batch-size", "max-partition-memory-bytes"),
    "metadata.max.age.ms": ("metadata-expiry-ms",),
    "max.block.ms": ("max-block-ms",),
}


def main() -> None:
    """The console script."""
    about = "This tool helps to read data from standard input and publish it to Kafka."
    command(OPTIONS, about, _run, usage_when_refused=True, failed=_failed)


def _failed(error: Exception) -> int:
    tell(f"org.apache.kafka.common.KafkaException: {error}" if isinstance(error, Failed) else caused(error))
    return 1


def _run(given: Given) -> int:
    _check(given)
    if given["line-reader"] != _READER:
        raise Failed(f"unsupported reader {given['line-reader']} (expected {_READER})")
    reader = _Reader(_reader_properties(given))
    from ottla.client import Producer
    from ottla.client.settings.producer import ProducerSettings

    with Producer(settings_for(ProducerSettings, _properties(given))) as producer:
        _write(producer, given["topic"], reader, sync="sync" in given)
    return 0


def _check(given: Given) -> None:
    require(given, "topic")
    pairs = (
        ("command-config", "producer.config"),
        ("command-property", "producer-property"),
        ("reader-property", "property"),
    )
    for newer, older in pairs:
        if newer in given and older in given:
            raise Usage(f"Options --{newer} and --{older} cannot be specified together.")
    for newer, older in (pairs[1], pairs[0], pairs[2]):
        if older in given:
            print(f"Warning: --{older} is deprecated and will be removed in a future version. Use --{newer} instead.")
    if "max-partition-memory-bytes" in given:
        print(
            "Warning: --max-partition-memory-bytes is deprecated and will be removed in Apache Kafka 5.0. Use "
            "--batch-size instead."
        )
    check_addresses(given["bootstrap-server"])


def _reader_properties(given: Given) -> dict[str, str]:
    properties = load(given["reader-config"]) if "reader-config" in given else {}
    return properties | key_values(given.values("reader-property") or given.values("property"))


def _properties(given: Given) -> dict[str, object]:
    file = given["command-config"] or given["producer.config"]
    properties: dict[str, object] = {**(load(file) if file else {})}
    properties |= key_values(given.values("command-property") or given.values("producer-property"))
    properties["bootstrap.servers"] = given["bootstrap-server"]
    properties["compression.type"] = (given["compression-codec"] or "gzip") if "compression-codec" in given else "none"
    properties.setdefault("client.id", "console-producer")
    for name, options in _SETTINGS.items():
        said = [option for option in options if option in given]
        if said or name not in properties:
            properties[name] = str(given[said[-1] if said else options[0]])
    # Without an explicit delivery timeout, the Java client raises it to the request timeout.
    timeout = str(properties["request.timeout.ms"])
    # The producer reports a timeout that is no number.
    properties.setdefault("delivery.timeout.ms", str(max(120_000, int(timeout)) if timeout.isdecimal() else 120_000))
    return properties


class _Record(NamedTuple):
    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, bytes | None]]


class _Reader:
    """Kafka's LineMessageReader: headers, key and value with their separators."""

    def __init__(self, properties: dict[str, str]) -> None:
        def flag(name: str) -> bool:
            return properties.get(name, "").strip().lower() == "true"

        self.parses_key, self.parses_headers = flag("parse.key"), flag("parse.headers")
        self.ignores_errors = flag("ignore.error")
        self.key_separator = properties.get("key.separator", "\t")
        self.delimiter = properties.get("headers.delimiter", "\t")
        self.separator = properties.get("headers.separator", ",")
        self.header_separator = properties.get("headers.key.separator", ":")
        self.null = properties.get("null.marker")
        self._check()

    def _check(self) -> None:
        named = {
            "headers.delimiter": self.delimiter,
            "headers.separator": self.separator,
            "headers.key.separator": self.header_separator,
        }
        pairs = [
            ("headers.delimiter", "headers.separator"),
            ("headers.delimiter", "headers.key.separator"),
            ("headers.separator", "headers.key.separator"),
        ]
        for pair, other in pairs:
            if named[pair] == named[other]:
                raise Failed(f"{pair} and {other} may not be equal")
        for name, text in {"key.separator": self.key_separator, **named}.items():
            if text == self.null:
                raise Failed(f"null.marker and {name} may not be equal")
        self.separators = pattern(self.separator)

    def records(self, lines: Iterable[str]) -> Iterator[_Record]:
        for number, line in enumerate(lines, 1):
            whole = text = line.rstrip("\n").removesuffix("\r")
            where = f"on line number {number}: '{whole}'"
            headers, text = self._part(self.parses_headers, text, self.delimiter, f"headers delimiter found {where}")
            key, text = self._part(self.parses_key, text, self.key_separator, f"key separator found {where}")
            parsed_headers = [] if headers in (None, self.null) else self._headers(headers or "", number)
            yield _Record(self._bytes(text), None if key is None else self._bytes(key), parsed_headers)

    def _part(self, wanted: bool, text: str, separator: str, missing: str) -> tuple[str | None, str]:
        if not wanted:
            return None, text
        part, match, rest = text.partition(separator)
        if match:
            return part, rest
        if self.ignores_errors:
            return None, text
        raise Failed(f"No {missing}")

    def _pairs(self, text: str) -> list[str]:
        """Split like Java's `Pattern.split`: without groups, and without the empty texts at the end."""
        pairs = self.separators.split(text)[:: self.separators.groups + 1]
        if len(pairs) > 1:
            while pairs and not pairs[-1]:
                pairs.pop()
        return pairs

    def _headers(self, text: str, number: int) -> list[tuple[str, bytes | None]]:
        headers: list[tuple[str, bytes | None]] = []
        for pair in self._pairs(text):
            name, colon, value = pair.partition(self.header_separator)
            if not colon and not self.ignores_errors:
                raise Failed(f"No header key separator found in pair '{pair}' on line number {number}")
            if name == self.null:
                raise Failed(f"Header keys should not be equal to the null marker '{self.null}' as they can't be null")
            headers.append((name, self._bytes(value) if colon else None))
        return headers

    def _bytes(self, text: str) -> bytes | None:
        return None if text == self.null else text.encode()


def _write(producer: Producer, topic: str, reader: _Reader, *, sync: bool) -> None:
    try:
        _send(producer, topic, reader, sync=sync)
    except KeyboardInterrupt:
        # The usual end of typing: lines that linger are written, as by Apache's tool.
        _flush(producer, topic)
        raise
    _flush(producer, topic)


def _send(producer: Producer, topic: str, reader: _Reader, *, sync: bool) -> None:
    from ottla.kernel.error import KafkaError

    for record in reader.records(_lines()):
        try:
            delivery = producer.send(topic, record.value, record.key, headers=record.headers or None)
            if sync:
                delivery.result()
        except KafkaError as error:
            if sync:
                raise
            tell(f"ERROR Error when sending message to topic {topic} with error: {caused(error)}")


def _flush(producer: Producer, topic: str) -> None:
    from ottla.kernel.error import KafkaError

    try:
        producer.flush()
    except KafkaError as error:
        tell(f"ERROR Error when sending message to topic {topic} with error: {caused(error)}")


def _lines() -> Iterator[str]:
    """Yield the lines of stdin, with a prompt on a terminal."""
    stream = sys.stdin.buffer
    prompts = sys.stdin.isatty() and sys.stdout.isatty()
    while True:
        if prompts:
            print(">", end="", flush=True)
        line = stream.readline()
        if not line:
            return
        yield line.decode(errors="replace")
