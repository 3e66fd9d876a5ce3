"""`kafka-consumer-groups --reset-offsets`: reset the committed offsets of a group without members."""

from __future__ import annotations

import csv
import io
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ottla.cli.kafka.program.error import standard_message
from ottla.cli.kafka.program.option import Given, Option, Usage, int32, int64, partition_id, pieces
from ottla.cli.kafka.program.tool import Failed, read_text, tell
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.operations.group_offsets import committed_or_end
from ottla.operations.offsets import Offsets, at_time, bounds, listed, within

if TYPE_CHECKING:
    from ottla.client import Admin, TopicPartition

#: What says where to; exactly one of them.
SPECIFICATIONS = (
    "to-offset",
    "shift-by",
    "to-datetime",
    "by-duration",
    "to-earliest",
    "to-latest",
    "to-current",
    "from-file",
)
#: The options that say where to.
RESET_OPTIONS = (
    Option("to-offset", "Reset to this offset.", "offset", int64),
    Option("from-file", "Reset to the offsets in a CSV file.", "path to CSV file"),
    Option("to-datetime", "Reset to a time, YYYY-MM-DDThh:mm:ss.sss.", "datetime"),
    Option("by-duration", "Reset to this long ago, PnDTnHnMnS.", "duration"),
    Option("to-earliest", "Reset to the first offsets."),
    Option("to-latest", "Reset to the end offsets."),
    Option("to-current", "Reset to the committed offsets, or the end."),
    Option("shift-by", "Reset by this number of offsets; negative: back.", "number-of-offsets", int64),
)
#: Jackson, which writes the CSV of Apache's tool, quotes what is longer.
_UNQUOTED_MAX = 24
_DURATION = re.compile(
    r"([-+]?)P(?:([-+]?\d+)D)?(?:T(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?\d+)(?:[.,](\d{0,9}))?S)?)?", re.IGNORECASE
)

#: A date that much later or earlier still is a number of 64 bits.
_DURATION_MS_MAX = 1 << 62
_TIMESTAMP = re.compile(r"(\d+)-(\d+)-(\d+)T(\d+):(\d+):(\d+)\.(\d+)(Z|[-+]\d\d(?::?\d\d)?)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def reset(given: Given, client: Admin, groups: list[str]) -> None:
    """Compute the new offsets of each group, set them with --execute, and print them."""
    new_offsets: dict[str, Offsets] = {}
    for group in groups:
        state = _state(client, group)
        if state in ("Empty", "Dead"):
            new_offsets[group] = _reset(given, client, group)
            continue
        new_offsets[group] = not_reset(group, state)
    if "export" in given:
        print(csv_text(new_offsets, single=len(given.values("group")) == 1))
    else:
        print_offsets(new_offsets)


def _state(client: Admin, group: str) -> str:
    try:
        return client.describe_group(group).state
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return "Dead"
        raise


def _reset(given: Given, client: Admin, group: str) -> Offsets:
    partitions = _scope(given, client, group)
    check_partitions(client, partitions)
    offsets = specified_offsets(given, client, group, partitions)
    if "execute" in given and "dry-run" not in given:
        client.alter_group_offsets(group, offsets).check()
    return offsets


def specified_offsets(given: Given, client: Admin, group: str, partitions: list[TopicPartition]) -> Offsets:
    """Return the offsets of the specification on the command line; Usage without one."""
    specified = next((name for name in SPECIFICATIONS if name in given), None)
    if specified is None:
        names = ", ".join(f"[{name}]" for name in SPECIFICATIONS)
        raise Usage(f"Option '[reset-offsets]' requires one of the following scenarios: [{names}]")
    return RESETS[specified](given, client, group, partitions)


def not_reset(group: str, state: str) -> Offsets:
    """Report that an active group is not reset."""
    why = f"is inactive, but the current state is {state}."
    print(f"\nError: Assignments can only be reset if the group '{group}' {why}")
    return {}


def _scope(given: Given, client: Admin, group: str) -> list[TopicPartition]:
    if "all-topics" in given:
        return sorted(client.list_group_offsets(group))
    if "topic" not in given:
        if "from-file" in given:
            return []
        raise Usage("One of the reset scopes should be defined: --all-topics, --topic.")
    return partitions_in(client, given.values("topic"))


def partitions_in(client: Admin, topics: list[str]) -> list[TopicPartition]:
    """Return the partitions of TOPIC (all of them) and TOPIC:0,1,2."""
    from ottla.client import TopicPartition

    partitions = [partition for topic in topics if ":" in topic for partition in partitions_of(topic)]
    try:
        described = client.describe_topics(topic for topic in topics if ":" not in topic).check()
    except KafkaError as error:
        raise Failed(standard_message(error)) from error
    for topic, description in described.items():
        partitions += [TopicPartition(topic, partition.partition) for partition in description.partitions]
    return partitions


def partitions_of(text: str) -> list[TopicPartition]:
    """Parse TOPIC:0,1,2. Usage for another form."""
    from ottla.client import TopicPartition

    topic, _, numbers = text.partition(":")
    if not numbers or ":" in numbers:
        raise Usage(f"Invalid topic arg '{text}', expected topic name and partitions")
    partitions = []
    for part in pieces(numbers):
        try:
            partitions.append(TopicPartition(topic, int32(part)))
        except ValueError:
            raise Usage(f"Invalid partition '{part}' specified in topic arg '{text}''") from None
    return partitions


def check_partitions(client: Admin, partitions: list[TopicPartition]) -> None:
    """Raise Failed unless all partitions exist and have a leader."""
    from ottla.client import TopicPartition

    described = client.describe_topics(dict.fromkeys(partition.topic for partition in partitions))
    for error in described.errors.values():
        why = f"org.apache.kafka.common.errors.UnknownTopicOrPartitionException: {standard_message(error)}"
        raise Failed(f"java.util.concurrent.ExecutionException: {why}") from error
    leaders = {
        TopicPartition(topic, partition.partition): partition.leader
        for topic, description in described.succeeded.items()
        for partition in description.partitions
    }
    if missing := [str(partition) for partition in partitions if partition not in leaders]:
        raise Failed(f'The partitions "{",".join(missing)}" do not exist')
    if headless := [str(partition) for partition in partitions if leaders[partition] is None]:
        raise Failed(f'The partitions "{",".join(headless)}" have no leader')


# ---- the specifications


def _within(client: Admin, wanted: Offsets) -> Offsets:
    """Clamp the offsets to the range of their partitions, with a warning."""
    starts, ends = bounds(client, wanted)
    clamped = within(wanted, starts, ends)
    for tp, offset in wanted.items():
        if clamped[tp] != offset:
            bound = "higher than latest" if offset > ends[tp] else "lower than earliest"
            tell(
                f"WARN New offset ({offset}) is {bound} offset for topic partition {tp}. Value will be set to "
                f"{clamped[tp]}"
            )
    return clamped


def _to_offset(given: Given, client: Admin, _: str, partitions: list[TopicPartition]) -> Offsets:
    return _within(client, dict.fromkeys(partitions, given.values("to-offset")[0]))


def _to_earliest(_: Given, client: Admin, __: str, partitions: list[TopicPartition]) -> Offsets:
    from ottla.client import OffsetSpec

    return listed(client, partitions, OffsetSpec.EARLIEST)


def _to_latest(_: Given, client: Admin, __: str, partitions: list[TopicPartition]) -> Offsets:
    from ottla.client import OffsetSpec

    return listed(client, partitions, OffsetSpec.LATEST)


def _shift_by(given: Given, client: Admin, group: str, partitions: list[TopicPartition]) -> Offsets:
    committed = client.list_group_offsets(group)
    for partition in partitions:
        if partition not in committed:
            raise Usage(f"Cannot shift offset for partition {partition} since there is no current committed offset")
    return _within(client, {partition: committed[partition].offset + given["shift-by"] for partition in partitions})


def _to_current(_: Given, client: Admin, group: str, partitions: list[TopicPartition]) -> Offsets:
    return committed_or_end(client, group, partitions)


def _to_datetime(given: Given, client: Admin, _: str, partitions: list[TopicPartition]) -> Offsets:
    return from_time(client, partitions, timestamp(given.values("to-datetime")[0]))


def _by_duration(given: Given, client: Admin, _: str, partitions: list[TopicPartition]) -> Offsets:
    return from_time(client, partitions, time.time_ns() // 1_000_000 - duration_ms(given["by-duration"]))


_EMPTY = "\nWarn: Partition {partition} from topic {topic} is empty. Falling back to latest known offset."


def from_time(client: Admin, partitions: list[TopicPartition], timestamp_ms: int, *, warning: str = _EMPTY) -> Offsets:
    """Return the first offsets at or after a time; the end, with a warning, if no record is that late."""
    offsets, late = at_time(client, partitions, timestamp_ms)
    for tp in late:
        print(warning.format(partition=tp.partition, topic=tp.topic))
    return offsets


def timestamp(text: str) -> int:
    """Parse YYYY-MM-DDThh:mm:ss.sss, in UTC unless it has a zone, to milliseconds. Failed for another form."""
    _, t, clock = text.partition("T")
    if not t:
        raise Failed(
            "java.text.ParseException: Error parsing timestamp. It does not contain a 'T' according to ISO8601 format"
        )
    zoned = text if any(sign in clock for sign in "+-Z") else text + "Z"
    match = _TIMESTAMP.fullmatch(zoned)
    try:
        if match is None:
            raise ValueError(zoned)
        # As in Java's SimpleDateFormat, the last number counts milliseconds: .5 is 5 ms.
        year, month, day, hour, minute, second, milliseconds = map(int, match.groups()[:7])
        zone = datetime.fromisoformat(f"2000-01-01T00:00{match[8]}").tzinfo
        at = datetime(year, month, day, hour, minute, second, milliseconds * 1000, zone)
        return (at - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        raise Failed(f'java.text.ParseException: Unparseable date: "{zoned}"') from None


def duration_ms(text: str) -> int:
    """Parse PnDTnHnMnS to milliseconds. Failed for another form."""
    match = _DURATION.fullmatch(text)
    if match is None or text.upper().endswith(("P", "T")):
        raise Failed("Text cannot be parsed to a Duration")
    sign, days, hours, minutes, seconds, fraction = match.groups()
    total = int(days or 0) * 86400 + int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
    below = int(f"{fraction or '':0<3}"[:3])
    milliseconds = total * 1000 + (-below if (seconds or "").startswith("-") else below)
    if abs(milliseconds) > _DURATION_MS_MAX:
        raise Failed("Text cannot be parsed to a Duration: it is too long")
    return -milliseconds if sign == "-" else milliseconds


def _from_file(given: Given, client: Admin, group: str, _: list[TopicPartition]) -> Offsets:
    plan = _plan(given)
    if group not in plan:
        print(f"\nError: No reset plan for group {group} found")
        return {}
    return _within(client, plan[group])


def _plan(given: Given) -> dict[str, Offsets]:
    """Parse the CSV of --export: topic, partition, offset, after the group if there are several."""
    from ottla.client import TopicPartition

    path = given.values("from-file")[0]
    try:
        text = read_text(path)
    except Failed as error:
        raise Failed(f"java.io.IOException: {error}") from error
    groups = given.values("group")
    plan: dict[str, Offsets] = {}
    for number, row in enumerate(csv.reader(io.StringIO(text), skipinitialspace=True), 1):
        if not row:
            continue
        try:
            (group, topic, partition, offset) = row if len(row) == 4 else (groups[0], *row)
            plan.setdefault(group, {})[TopicPartition(topic, partition_id(partition))] = int64(offset)
        except (ValueError, IndexError) as error:
            raise Failed(f"{path}, line {number}: expected topic,partition,offset or group,topic,...") from error
    return plan


#: By specification: the offsets of a group that it means.
RESETS: dict[str, Callable[[Given, Admin, str, list[TopicPartition]], Offsets]] = {
    "to-offset": _to_offset,
    "shift-by": _shift_by,
    "to-datetime": _to_datetime,
    "by-duration": _by_duration,
    "to-earliest": _to_earliest,
    "to-latest": _to_latest,
    "to-current": _to_current,
    "from-file": _from_file,
}


# ---- what is shown


def print_offsets(new_offsets: dict[str, Offsets]) -> None:
    """Print a table of groups and their new offsets."""
    group_width = max([15, *map(len, new_offsets)])
    topic_width = max([15, *(len(tp.topic) for offsets in new_offsets.values() for tp in offsets)])
    rows: list[tuple[object, ...]] = [("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")] if new_offsets else []
    rows += [
        (group, tp.topic, tp.partition, offsets[tp]) for group, offsets in new_offsets.items() for tp in sorted(offsets)
    ]
    for group, topic, partition, offset in rows:
        print(f"\n{group!s:<{group_width}} {topic!s:<{topic_width}} {partition!s:<10} {offset}", end="")
    print()


def csv_text(new_offsets: dict[str, Offsets], *, single: bool) -> str:
    """Return the lines of --export."""
    lines = []
    for group, offsets in new_offsets.items():
        for partition in sorted(offsets):
            cells = [_quoted(partition.topic), str(partition.partition), str(offsets[partition])]
            lines.append(",".join(cells if single else [_quoted(group), *cells]) + "\n")
    return "".join(lines)


def _quoted(text: str) -> str:
    if len(text) <= _UNQUOTED_MAX and not re.search(r'[,"\s]', text):
        return text
    return '"' + text.replace('"', '""') + '"'
