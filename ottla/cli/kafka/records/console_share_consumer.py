"""kafka-console-share-consumer: print the records of a topic on stdout, as a member of a share group (KIP-932).

Each record is acknowledged when it is printed: accepted, or as --reject and --release say. At the end, the records of
the last poll that were not printed are released.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from ottla.cli.kafka.program.error import caused
from ottla.cli.kafka.program.option import BOOTSTRAP, Given, Option, Refused, Usage, int32, key_values, require
from ottla.cli.kafka.program.tool import Failed, command, load, settings_for, tell
from ottla.cli.kafka.records.console_consumer import formatter_of, group_of, timestamp_types
from ottla.cli.kafka.records.formatter import DefaultFormatter, Formatter

if TYPE_CHECKING:
    from ottla.client import Acknowledge, ShareConsumer

OPTIONS = (
    Option("topic", "Topic to read.", "topic"),
    Option("consumer-property", "Deprecated: use --command-property.", "consumer_prop"),
    Option("command-property", "Setting of the consumer; may be repeated.", "consumer_prop"),
    Option("consumer-config", "Deprecated: use --command-config.", "config file"),
    Option("command-config", "Properties file for the consumer.", "config file"),
    Option(
        "formatter",
        "Formatter of the records.",
        "class",
        default="org.apache.kafka.tools.consumer.DefaultMessageFormatter",
    ),
    Option("property", "Deprecated: use --formatter-property.", "prop"),
    Option(
        "formatter-property",
        "Property of the formatter; may be repeated: print.timestamp, print.key, print.offset, print.delivery, "
        "print.epoch, print.partition, print.headers, print.value, key.separator, line.separator, headers.separator, "
        "null.literal, key.deserializer, value.deserializer, headers.deserializer.",
        "prop",
    ),
    Option("formatter-config", "Properties file with such properties.", "config file"),
    Option("max-messages", "Stop after this many records.", "num_messages", int32, default=-1),
    Option("timeout-ms", "Stop when no record has arrived for this long (ms).", "timeout_ms", int32, default=-1),
    Option("reject", "Reject each record: it is not delivered again."),
    Option("release", "Release each record: it is delivered again."),
    Option("reject-message-on-error", "Reject records that cannot be formatted, and continue."),
    BOOTSTRAP,
    Option("key-deserializer", "Deserializer of keys.", "deserializer for keys"),
    Option("value-deserializer", "Deserializer of values.", "deserializer for values"),
    Option("group", "Share group (default: console-share-consumer).", "share group id"),
    Option("enable-systest-events", "Print an event at shutdown."),
)
_POLL_S = 0.5


def main() -> None:
    """The console script."""
    about = "This tool helps to read data from Kafka topics using share groups and outputs it to standard output."
    command(OPTIONS, about, _run, usage_when_refused=True)


def _run(given: Given) -> int:
    _check(given)
    properties = _properties(given)
    formatter = formatter_of(given)
    from ottla.client import ShareConsumer
    from ottla.client.settings.share import ShareConsumerSettings

    properties["share.acknowledgement.mode"] = "explicit"
    try:
        if isinstance(formatter, DefaultFormatter) and formatter.prints_timestamp:
            formatter.timestamp_types = timestamp_types(given["bootstrap-server"], properties, given["topic"])
        with ShareConsumer(settings_for(ShareConsumerSettings, properties)) as consumer:
            consumer.subscribe([given["topic"]])
            _show(given, consumer, formatter)
    except KeyboardInterrupt:
        pass
    finally:
        sys.stdout.flush()
        tell(f"Processed a total of {formatter.shown} messages")
    if "enable-systest-events" in given:
        print("shutdown_complete")
    return 0


def _check(given: Given) -> None:
    if "topic" not in given:
        raise Usage("--topic is a required argument")
    require(given, "bootstrap-server")
    if "reject" in given and "release" in given:
        raise Usage("At most one of --reject and --release may be specified.")
    pairs = (("consumer-property", "command-property"), ("consumer-config", "command-config"))
    for older, newer in pairs:
        if older in given and newer in given:
            raise Usage(f"Options --{older} and --{newer} cannot be specified together.")
    for older, newer in pairs:
        if older in given:
            print(f"Option --{older} is deprecated and will be removed in a future version. Use --{newer} instead.")


def _properties(given: Given) -> dict[str, object]:
    path = given["command-config"] or given["consumer-config"]
    file = load(path) if path else {}
    extra = key_values(given.values("command-property") or given.values("consumer-property"))
    group = group_of(given, file, extra, "consumer-config")
    merged: dict[str, object] = {**file, **extra, "bootstrap.servers": given["bootstrap-server"]}
    merged.setdefault("client.id", "console-share-consumer")
    merged["group.id"] = "console-share-consumer" if group is None else group
    return merged


def _word(given: Given) -> Acknowledge:
    from ottla.client import Acknowledge

    if "reject" in given:
        return Acknowledge.REJECT
    return Acknowledge.RELEASE if "release" in given else Acknowledge.ACCEPT


def _show(given: Given, consumer: ShareConsumer, formatter: Formatter) -> None:
    from ottla.client import Acknowledge

    most, word, out = given["max-messages"], _word(given), sys.stdout.buffer
    patience_s = None if given["timeout-ms"] < 0 else given["timeout-ms"] / 1000
    last = time.monotonic()
    while most == -1 or formatter.shown < most:
        wait_s = _POLL_S if patience_s is None else max(0.0, min(_POLL_S, last + patience_s - time.monotonic()))
        records = consumer.poll(wait_s)
        for place, record in enumerate(records):
            if most != -1 and formatter.shown >= most:
                for left in records[place:]:
                    consumer.acknowledge(left, Acknowledge.RELEASE)
                break
            try:
                formatter.write(record, out)
                consumer.acknowledge(record, word)
            except (ValueError, Failed, Refused) as error:
                if "reject-message-on-error" not in given:
                    raise Failed(str(error)) from error
                tell(f"ERROR Error processing message, rejecting this message: {caused(error)}")
                consumer.acknowledge(record, Acknowledge.REJECT)
        if records:
            out.flush()
            last = time.monotonic()
        elif patience_s is not None and time.monotonic() - last >= patience_s:
            timeout = "org.apache.kafka.common.errors.TimeoutException"
            tell(f"ERROR Error processing message, terminating consumer process: {timeout}")
            return
