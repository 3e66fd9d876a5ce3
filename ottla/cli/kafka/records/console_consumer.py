"""kafka-console-consumer: print the records of topics on stdout."""

from __future__ import annotations

import random
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.cli.kafka.program.error import caused
from ottla.cli.kafka.program.match import pattern
from ottla.cli.kafka.program.option import (
    Given,
    Option,
    Usage,
    int32,
    int64,
    key_values,
    one_of,
    partition_id,
    require,
)
from ottla.cli.kafka.program.tool import Failed, admin, command, load, settings_for, tell
from ottla.cli.kafka.records.formatter import FORMATTERS, DefaultFormatter, Formatter

if TYPE_CHECKING:
    from ottla.client import Consumer
    from ottla.columns.record import ConsumerRecord

OPTIONS = (
    Option("topic", "Topic to read.", "topic"),
    Option("include", "Regular expression: read all topics whose names match.", "Java regex (String)"),
    Option("partition", "Only this partition, from its end unless --offset is given.", "partition", partition_id),
    Option("offset", "Offset to start at: a number, earliest or latest.", "consume offset", default="latest"),
    Option("consumer-property", "Deprecated: use --command-property.", "consumer_prop"),
    Option("command-property", "Setting of the consumer; may be repeated.", "consumer_prop"),
    Option("consumer.config", "Deprecated: use --command-config.", "config file"),
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
        "Property of the formatter; may be repeated: print.timestamp, print.key, print.offset, print.epoch, "
        "print.partition, print.headers, print.value, key.separator, line.separator, headers.separator, null.literal, "
        "key.deserializer, value.deserializer, headers.deserializer.",
        "prop",
    ),
    Option("formatter-config", "Properties file with such properties.", "config file"),
    Option("from-beginning", "Start with the earliest record if there is no committed offset."),
    Option("max-messages", "Stop after this many records.", "num_messages", int32),
    Option("timeout-ms", "Stop when no record has arrived for this long (ms).", "timeout_ms", int64),
    Option("skip-message-on-error", "Skip records that cannot be formatted."),
    Option("bootstrap-server", "REQUIRED: brokers to connect to first, HOST:PORT,HOST:PORT.", "server to connect to"),
    Option("key-deserializer", "Deserializer of keys.", "deserializer for keys"),
    Option("value-deserializer", "Deserializer of values.", "deserializer for values"),
    Option("enable-systest-events", "Print an event at shutdown."),
    Option(
        "isolation-level",
        "read_committed leaves out records of transactions that are not committed.",
        "",
        default="read_uncommitted",
    ),
    Option("group", "The consumer group.", "consumer group id"),
)
_POLL_S = 0.5
_ADVICE = (
    "The consumer rebalance protocol (KIP-848) is production-ready! Set group.protocol=consumer to try it out. See "
    "https://kafka.apache.org/documentation/#consumer_rebalance_protocol"
)


def main() -> None:
    """The console script."""
    about = "This tool helps to read data from Kafka topics and outputs it to standard output."
    command(OPTIONS, about, _run, usage_when_refused=True)


def _run(given: Given) -> int:
    _check(given)
    properties = _properties(given)
    offset = _offset(given)
    formatter = formatter_of(given)
    from ottla.client import Consumer
    from ottla.client.settings.consumer import ConsumerSettings

    with Consumer(settings_for(ConsumerSettings, properties)) as consumer:
        if (
            "partition" not in given
            and str(properties.get("group.protocol", ConsumerSettings.declared["group_protocol"].default)).lower()
            == "classic"
        ):
            tell(_ADVICE)
        try:
            if isinstance(formatter, DefaultFormatter) and formatter.prints_timestamp and "topic" in given:
                formatter.timestamp_types = timestamp_types(given["bootstrap-server"], properties, given["topic"])
            _place(given, consumer, offset)
            shown = _show(given, consumer, formatter)
        except KeyboardInterrupt:
            shown = formatter.shown
        finally:
            sys.stdout.flush()
    tell(f"Processed a total of {shown} messages")
    if "enable-systest-events" in given:
        print("shutdown_complete")
    return 0


def _check(given: Given) -> None:
    one_of(given, "topic", "include")
    if "partition" in given:
        if "topic" not in given:
            raise Usage("The topic is required when partition is specified.")
        if "from-beginning" in given and "offset" in given:
            raise Usage("Options from-beginning and offset cannot be specified together.")
    elif "offset" in given:
        raise Usage("The partition is required when offset is specified.")
    require(given, "bootstrap-server")
    for newer, older in (("command-property", "consumer-property"), ("command-config", "consumer.config")):
        if newer in given and older in given:
            raise Usage(f"Options --{older} and --{newer} cannot be specified together.")
        if older in given:
            print(f"Option --{older} is deprecated and will be removed in a future version. Use --{newer} instead.")


def _properties(given: Given) -> dict[str, object]:
    path = given["command-config"] or given["consumer.config"]
    file = load(path) if path else {}
    extra = key_values(given.values("command-property") or given.values("consumer-property"))
    group = group_of(given, file, extra, "consumer.config")
    if group is not None and "partition" in given:
        raise Usage("Options group and partition cannot be specified together.")
    merged: dict[str, object] = {**file, **extra}
    beginning = "from-beginning" in given
    if beginning and merged.get("auto.offset.reset", "earliest") != "earliest":
        reset = merged["auto.offset.reset"]
        raise Failed(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', please remove one option"
        )
    merged.setdefault("auto.offset.reset", "earliest" if beginning else "latest")
    merged["bootstrap.servers"] = given["bootstrap-server"]
    merged.setdefault("client.id", "console-consumer")
    if "isolation-level" in given or "isolation.level" not in merged:
        merged["isolation.level"] = given["isolation-level"]
    if group is not None:
        merged["group.id"] = group
    else:
        merged["group.id"] = f"console-consumer-{random.randrange(100_000)}"
        merged.setdefault("enable.auto.commit", "false")
    return merged


def group_of(given: Given, file: Mapping[str, str], extra: Mapping[str, str], config: str) -> str | None:
    """Return the group's id from any source. Usage if two differ; `config` is the deprecated option of the file."""
    groups = {name for name in (given["group"], file.get("group.id"), extra.get("group.id")) if name is not None}
    if len(groups) > 1:
        names = ", ".join(f"'{group}'" for group in sorted(groups))
        raise Usage(
            "The group ids provided in different places (directly using '--group', via '--consumer-property', or via "
            f"'--{config}') do not match. Detected group ids: {names}"
        )
    return next(iter(groups), None)


def _offset(given: Given) -> int:
    """Return the offset for --partition; -2: the beginning, -1: the end."""
    if "offset" not in given:
        return -2 if "from-beginning" in given else -1
    text = given["offset"]
    named = {"earliest": -2, "latest": -1}
    if text.lower() in named:
        return named[text.lower()]
    try:
        offset = int64(text)
    except ValueError:
        offset = -1
    if offset < 0:
        raise Usage(
            f"The provided offset value '{text}' is incorrect. Valid values are 'earliest', 'latest', or a "
            "non-negative long."
        )
    return offset


def formatter_of(given: Given) -> Formatter:
    """Return the formatter of --formatter with its properties."""
    if given["formatter"] not in FORMATTERS:
        raise Usage(given["formatter"])
    if "formatter-property" in given and "property" in given:
        raise Usage("Options --property and --formatter-property cannot be specified together.")
    if "property" in given:
        print(
            "Option --property is deprecated and will be removed in a future version. Use --formatter-property instead."
        )
    properties = load(given["formatter-config"]) if "formatter-config" in given else {}
    for option, name in (("key-deserializer", "key.deserializer"), ("value-deserializer", "value.deserializer")):
        if given[option]:
            properties[name] = given[option]
    properties |= key_values(given.values("formatter-property") or given.values("property"))
    return FORMATTERS[given["formatter"]](properties)


def timestamp_types(bootstrap: str, properties: dict[str, object], topic: str) -> dict[str, str]:
    """Return topic -> type of its timestamps, which our client's records do not have."""
    from ottla.client import ConfigResource, KafkaError, ResourceType
    from ottla.settings.client.client import ClientSettings

    shared = {setting.name for setting in ClientSettings.declared.values()}
    with admin(bootstrap, {name: value for name, value in properties.items() if name in shared}) as client:
        try:
            entries = client.describe_config(ConfigResource(ResourceType.TOPIC, topic), ["message.timestamp.type"])
        except KafkaError:
            # A topic that is created later has the default.
            return {}
    return {topic: entries["message.timestamp.type"].value or "CreateTime"}


def _place(given: Given, consumer: Consumer, offset: int) -> None:
    from ottla.client import TopicPartition

    if "topic" not in given:
        consumer.subscribe(pattern(given["include"]))
    elif "partition" not in given:
        consumer.subscribe([given["topic"]])
    else:
        partition = TopicPartition(given["topic"], given["partition"])
        consumer.assign([partition])
        if offset == -2:
            consumer.seek_to_beginning([partition])
        elif offset == -1:
            consumer.seek_to_end([partition])
        else:
            consumer.seek(partition, offset)


def _write(given: Given, consumer: Consumer, formatter: Formatter, records: Sequence[ConsumerRecord]) -> None:
    """Write records; when that ends early, the consumer's close commits nothing from the one that was not shown on."""
    unshown = deque(records)
    try:
        while unshown:
            try:
                formatter.write(unshown[0], sys.stdout.buffer)
            except (ValueError, Failed) as error:
                tell(f"ERROR Error processing message: {caused(error)}")
                if "skip-message-on-error" not in given:
                    # As in Apache's tool, the next run begins behind it.
                    unshown.popleft()
                    raise Failed(str(error)) from error
            unshown.popleft()
    finally:
        from ottla.client import TopicPartition

        # The first of each partition comes last.
        for record in reversed(unshown):
            consumer.seek(TopicPartition(record.topic, record.partition), record.offset)


def _show(given: Given, consumer: Consumer, formatter: Formatter) -> int:
    most = given["max-messages"]
    patience_s = None if given["timeout-ms"] is None or given["timeout-ms"] < 0 else given["timeout-ms"] / 1000
    out = sys.stdout.buffer
    last = time.monotonic()
    while most is None or most < 0 or formatter.shown < most:
        wait_s = _POLL_S if patience_s is None else max(0.0, min(_POLL_S, last + patience_s - time.monotonic()))
        left = None if most is None or most < 0 else most - formatter.shown
        records = consumer.poll(wait_s, max_records=left)
        if records:
            _write(given, consumer, formatter, records)
            out.flush()
            last = time.monotonic()
        elif patience_s is not None and time.monotonic() - last >= patience_s:
            timeout = "org.apache.kafka.common.errors.TimeoutException"
            tell(f"ERROR Error processing message, terminating consumer process: {timeout}")
            break
    return formatter.shown
