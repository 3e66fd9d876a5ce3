"""kafka-get-offsets: the offsets of partitions at their start, end or a time."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.cli.kafka.program.error import caused
from ottla.cli.kafka.program.match import topic_filter
from ottla.cli.kafka.program.option import BOOTSTRAP, COMMAND_CONFIG, Given, Option, int32, int64, pieces, require
from ottla.cli.kafka.program.tool import Failed, admin, admin_of, check_addresses, command, tell

if TYPE_CHECKING:
    from ottla.client import Admin, TopicPartition

_TIMES = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}
_NAMES = (
    "-1 or latest / -2 or earliest / -3 or max-timestamp / -4 or earliest-local / -5 or latest-tiered / -6 or "
    "earliest-pending-upload"
)
_RULE = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")

OPTIONS = (
    BOOTSTRAP,
    COMMAND_CONFIG,
    Option(
        "topic-partitions",
        "Patterns of topics and partitions, separated by commas: a regular expression for the topic, then a colon and "
        "a number, N-, -N or N-M (without M).",
        "topic1:1,topic2:0-3,topic3,topic4:5-,topic5:-3",
    ),
    Option("topic", "Regular expression for topics (default: all topics).", "topic"),
    Option("partitions", "Partition numbers, separated by commas (default: all).", "partition ids"),
    Option("time", "Which offset to print.", f"<timestamp> / {_NAMES}", default="latest"),
    Option("exclude-internal-topics", "Leave out Kafka's internal topics."),
)


def main() -> None:
    """The console script."""
    about = "An interactive shell for getting topic-partition offsets."
    command(OPTIONS, about, _run, refused="Error occurred: {}", failed=_failed)


def _failed(error: Exception) -> int:
    tell(f"Error occurred: {caused(error)}")
    return 1


def _run(given: Given) -> int:
    require(given, "bootstrap-server")
    check_addresses(given["bootstrap-server"])
    if "topic-partitions" in given and ("topic" in given or "partitions" in given):
        raise Failed("--topic-partitions cannot be used with --topic or --partitions")
    at = _time(given["time"])
    takes = _filter(given)
    with admin(given["bootstrap-server"], {**admin_of(given), "client.id": "GetOffsetShell"}) as client:
        partitions = _partitions(client, takes, internal="exclude-internal-topics" not in given)
        if not partitions:
            raise Failed("Could not match any topic-partitions with the specified filters")
        listed = client.list_offsets(dict.fromkeys(partitions, at))
    for partition in sorted(partitions, key=str):
        if partition in listed.errors:
            why = caused(listed.errors[partition])
            tell(f"Skip getting offsets for topic-partition {partition} due to error: {why}")
        elif listed[partition].offset >= 0:
            print(f"{partition.topic}:{partition.partition}:{listed[partition].offset}")
    return 0


def _time(text: str) -> int:
    if text in _TIMES:
        return _TIMES[text]
    try:
        return int64(text)
    except ValueError:
        message = f"Malformed time argument {text}. Please use {_NAMES}, or a specified long format timestamp"
        raise Failed(message) from None


def _filter(given: Given) -> Callable[[str, int], bool]:
    if "topic-partitions" in given:
        rules = [_rule(part) for part in pieces(given["topic-partitions"])]
        return lambda topic, partition: any(rule(topic, partition) for rule in rules)
    takes = topic_filter(given["topic"])
    numbers = _numbers(given["partitions"] or "")
    return lambda topic, partition: takes(topic) and (not numbers or partition in numbers)


def _numbers(text: str) -> set[int]:
    try:
        return {int32(part) for part in pieces(text) if text}
    except ValueError:
        message = f"--partitions expects a comma separated list of numeric partition ids, but received: {text}"
        raise Failed(message) from None


def _rule(text: str) -> Callable[[str, int], bool]:
    match = _RULE.fullmatch(text)
    if match is None:
        raise Failed(f"Invalid rule specification: {text}")
    topic, number, low, high = match.groups()
    takes = topic_filter(topic or None)
    first = int(number or low or 0)
    end = first + 1 if number else int(high) if high else 1 << 31
    return lambda name, partition: takes(name) and first <= partition < end


def _partitions(client: Admin, takes: Callable[[str, int], bool], *, internal: bool) -> list[TopicPartition]:
    from ottla.client import TopicPartition

    names = [listing.name for listing in client.list_topics(internal=internal)]
    return [
        TopicPartition(name, partition.partition)
        for name, topic in client.describe_topics(names).check().items()
        for partition in topic.partitions
        if takes(name, partition.partition)
    ]
