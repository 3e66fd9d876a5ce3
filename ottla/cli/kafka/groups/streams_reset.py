"""kafka-streams-application-reset: reset an application of Kafka Streams (classic protocol).

Rules:
- The offsets of the input topics are reset as the options say (default: to the beginning), and the internal topics are
  deleted: those whose names begin with the application's id and have a suffix of Streams.
- A group with members is refused; --force removes the members.
- The application's local state stays: KafkaStreams#cleanUp() deletes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ottla.cli.kafka.groups.consumer_group_reset import duration_ms, from_time, timestamp
from ottla.cli.kafka.program.error import caused
from ottla.cli.kafka.program.option import COMMAND_CONFIG, Given, Option, Refused, Usage, forbid, int64, partition_id
from ottla.cli.kafka.program.tool import Failed, admin, admin_of, command, read_text, tell
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.operations.group_offsets import committed_or_end
from ottla.operations.offsets import Offsets, bounds, listed, partitions_of, within
from ottla.operations.streams_topic import internal_topics

if TYPE_CHECKING:
    from ottla.client import Admin, TopicPartition

R = TypeVar("R")

_EMPTY = (
    "Partition {partition} from topic {topic} is empty, without a committed record. "
    "Falling back to latest known offset."
)

_SPECIFICATIONS = ("to-offset", "to-datetime", "by-duration", "to-earliest", "to-latest", "from-file", "shift-by")
_SERVER = "localhost:9092"
OPTIONS = (
    Option("application-id", "REQUIRED: id of the application (application.id).", "id"),
    Option("bootstrap-server", f"Brokers to connect to first (default: {_SERVER}).", "server to connect to"),
    Option("input-topics", "Input topics, separated by commas; their offsets are reset.", "list", separator=","),
    Option("intermediate-topics", "[deprecated] Topics whose offsets are set to the end.", "list", separator=","),
    Option("internal-topics", "Internal topics to delete (default: all).", "list", separator=","),
    Option("to-offset", "Reset to an offset.", "Long", int64),
    Option("to-datetime", "Reset to a time, YYYY-MM-DDThh:mm:ss.sss.", ""),
    Option("by-duration", "Reset to this long ago, PnDTnHnMnS.", ""),
    Option("to-earliest", "Reset to the first offsets."),
    Option("to-latest", "Reset to the end offsets."),
    Option("from-file", "Reset to the offsets in a CSV file, TOPIC,PARTITION,OFFSET.", ""),
    Option("shift-by", "Reset by this number of offsets; negative: back.", "number-of-offsets", int64),
    Option("config-file", "Deprecated: use --command-config.", "file name"),
    COMMAND_CONFIG,
    Option("force", "Remove the members of the group; stop the application first."),
    Option("dry-run", "Only show what would change."),
)
_MISSING = "Missing required option(s) [application-id]"


def main() -> None:
    """The console script."""
    about = "This tool resets an application of Kafka Streams, so that it reads its input from the beginning."
    command(OPTIONS, about, _run, alone=_MISSING, usage_when_refused=True)


def _run(given: Given) -> int:
    if "application-id" not in given:
        raise Usage(_MISSING)
    for specification in _SPECIFICATIONS:
        forbid(given, specification, [other for other in _SPECIFICATIONS if other != specification])
    forbid(given, "config-file", ("command-config",))
    try:
        return _reset(given)
    except KafkaError as error:
        tell(f"ERROR: java.util.concurrent.ExecutionException: {caused(error)}")
    except Refused as error:
        tell(f"ERROR: joptsimple.OptionArgumentConversionException: {error}")
    except (OttlaError, Failed) as error:
        tell(f"ERROR: {error}")
    return 1


def _reset(given: Given) -> int:
    group = given["application-id"]
    config = "command-config"
    if "config-file" in given:
        config = "config-file"
        print(
            "Option --config-file has been deprecated and will be removed in a future version. Use --command-config "
            "instead."
        )
    with admin(given["bootstrap-server"] or _SERVER, admin_of(given, config)) as client:
        _remove_members(client, group, force="force" in given)
        topics = sorted(topic.name for topic in client.list_topics())
        if "dry-run" in given:
            print("----Dry run displays the actions which will be performed when running Streams Reset Tool----")
        code = _reset_offsets(given, client, group, topics)
        _delete_topics(given, client, group, topics)
    return code


def _remove_members(client: Admin, group: str, *, force: bool) -> None:
    try:
        members = client.describe_group(group).members
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return
        raise
    if not members:
        return
    if not force:
        names = ", ".join(member.id for member in members)
        raise Failed(
            f"java.lang.IllegalStateException: Consumer group '{group}' is still active and has following members: "
            f"[{names}]. Make sure to stop all running application instances before running the reset tool. You can "
            "use option '--force' to remove active members from the group."
        )
    print(f"Force deleting all active members in the group: {group}")
    client.remove_group_members(group)


# ---- offsets


def _reset_offsets(given: Given, client: Admin, group: str, topics: list[str]) -> int:
    inputs = given.values("input-topics")
    if "intermediate-topics" in given:
        print("WARN: `--intermediate-topics` is deprecated and will be removed in a future release")
    between = given.values("intermediate-topics")
    if not inputs and not between:
        print("No input or intermediate topics specified. Skipping seek.")
        return 0
    if inputs:
        print(f"Reset-offsets for input topics [{', '.join(inputs)}]")
    if between:
        print(f"Seek-to-end for intermediate topics [{', '.join(between)}]")
    missing = _print_missing(inputs, topics, "input", "Topic: ") + _print_missing(
        between, topics, "intermediate", "Topic:"
    )
    existing = [name for name in dict.fromkeys([*inputs, *between]) if name in topics]
    if not existing:
        return 1
    partitions = sorted(partition for topic in existing for partition in partitions_of(client, topic))
    offsets = _input_offsets(given, client, group, [partition for partition in partitions if partition.topic in inputs])
    offsets |= _ends(client, group, [partition for partition in partitions if partition.topic not in inputs])
    if "dry-run" not in given:
        client.alter_group_offsets(group, offsets).check()
    print("Done.")
    return 1 if missing else 0


def _print_missing(names: list[str], topics: list[str], kind: str, prefix: str) -> int:
    missing = [name for name in names if name not in topics]
    if missing:
        print(f"Following {kind} topics are not found, skipping them")
    for name in missing:
        print(f"{prefix}{name}")
    return len(missing)


def _input_offsets(given: Given, client: Admin, group: str, partitions: list[TopicPartition]) -> Offsets:
    if not partitions:
        return {}
    print(f"Following input topics offsets will be reset to (for consumer group {group})")
    offsets = _wanted(given, client, group, partitions)
    for partition in partitions:
        print(f"Topic: {partition.topic} Partition: {partition.partition} Offset: {offsets[partition]}")
    return offsets


def _wanted(given: Given, client: Admin, group: str, partitions: list[TopicPartition]) -> Offsets:
    from ottla.client import OffsetSpec

    if "to-offset" in given:
        return _within(client, dict.fromkeys(partitions, given["to-offset"]))
    if "to-latest" in given:
        return listed(client, partitions, OffsetSpec.LATEST)
    if "shift-by" in given:
        at = committed_or_end(client, group, partitions)
        return _within(client, {tp: offset + given["shift-by"] for tp, offset in at.items()})
    if "to-datetime" in given:
        return from_time(client, partitions, _parsed(timestamp, given["to-datetime"]), warning=_EMPTY)
    if "by-duration" in given:
        return from_time(
            client, partitions, time.time_ns() // 1_000_000 - _duration(given["by-duration"]), warning=_EMPTY
        )
    if "from-file" in given:
        plan = _parsed(_plan, given["from-file"])
        if absent := [str(partition) for partition in partitions if partition not in plan]:
            raise Failed(f"{given['from-file']} has no offset for {', '.join(absent)}")
        return _within(client, {partition: plan[partition] for partition in partitions})
    return listed(client, partitions, OffsetSpec.EARLIEST)


def _duration(text: str) -> int:
    try:
        return duration_ms(text)
    except Failed as error:
        raise Failed(f"java.time.format.DateTimeParseException: {error}") from error


def _parsed(read: Callable[[str], R], text: str) -> R:
    """Parse a value with `read`; on failure, print Apache's extra line."""
    try:
        return read(text)
    except Failed:
        tell("ERROR: Resetting offsets failed.")
        raise


def _plan(path: str) -> Offsets:
    from ottla.client import TopicPartition

    text = read_text(path)
    if not text:
        raise Failed("java.text.ParseException: Error parsing reset plan CSV file. It is empty,")
    plan: Offsets = {}
    for line in text.rstrip("\n").split("\n"):
        cells = line.split(",")
        if len(cells) != 3:
            raise Failed(
                "java.text.ParseException: Reset plan CSV file is not following the format `TOPIC,PARTITION,OFFSET`."
            )
        try:
            plan[TopicPartition(cells[0], partition_id(cells[1]))] = int64(cells[2])
        except ValueError as error:
            raise Failed(f"{path}: {line}: partition and offset must be whole numbers") from error
    return plan


def _within(client: Admin, wanted: Offsets) -> Offsets:
    """Clamp the offsets to the range of their partitions. Like Apache's tool, also report an offset at either end."""
    starts, ends = bounds(client, wanted)
    clamped = within(wanted, starts, ends)
    for tp, offset in wanted.items():
        if offset >= ends[tp]:
            print(f"New offset ({offset}) is higher than latest offset. Value will be set to {ends[tp]}")
        elif offset <= starts[tp]:
            print(f"New offset ({offset}) is lower than earliest offset. Value will be set to {starts[tp]}")
    return clamped


def _ends(client: Admin, group: str, partitions: list[TopicPartition]) -> Offsets:
    from ottla.client import OffsetSpec

    if not partitions:
        return {}
    print(f"Following intermediate topics offsets will be reset to end (for consumer group {group})")
    for partition in partitions:
        print(f"Topic: {partition.topic}")
    return listed(client, partitions, OffsetSpec.LATEST)


# ---- topics


def _delete_topics(given: Given, client: Admin, group: str, topics: list[str]) -> None:
    own = {*given.values("input-topics"), *given.values("intermediate-topics")}
    inferred = internal_topics(group, [topic for topic in topics if topic not in own])
    named = given.values("internal-topics")
    if not set(named) <= set(inferred):
        raise Failed(
            "java.lang.IllegalArgumentException: Invalid topic specified in the --internal-topics option. Ensure that "
            "the topics specified are all internal topics. Do a dry run without the --internal-topics option to see "
            "the list of all internal topics that can be deleted."
        )
    chosen = named or inferred
    print(f"Deleting {'specified' if named else 'inferred'} internal topics [{', '.join(chosen)}]")
    if "dry-run" not in given and chosen:
        results = client.delete_topics(chosen)
        for name, error in results.errors.items():
            tell(f"ERROR: deleting topic {name}", caused(error))
        if results.errors:
            raise Failed("java.lang.RuntimeException: Encountered an error deleting one or more topics")
    print("Done.")
