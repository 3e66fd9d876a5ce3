"""`kafka-consumer-groups --describe`: offsets and lag, members, states."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.cli.kafka.program.option import Given
from ottla.cli.kafka.program.tool import tell
from ottla.kernel.named import NamedTuple

if TYPE_CHECKING:
    from ottla.client import Admin, TopicPartition
    from ottla.client.admin.result import GroupDescription, MemberDescription

_MOVING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


def describe(given: Given, client: Admin, groups: list[str]) -> None:
    """Print the requested view of each group, sorted by name."""
    descriptions = {group: client.describe_group(group) for group in groups}
    for group in sorted(descriptions):
        description = descriptions[group]
        if "members" in given:
            if _shows(description, len(description.members)) or description.state != "Dead":
                _print_members(description, verbose="verbose" in given)
        elif "state" in given:
            if _shows(description, 1):
                _print_state(description, verbose="verbose" in given)
        else:
            rows = _rows(client, description)
            if _shows(description, len(rows)):
                _print_offsets(rows, verbose="verbose" in given)


def _shows(group: GroupDescription, rows: int) -> bool:
    """Report an unusual state of the group, and return whether there is something to print."""
    if group.state == "Dead":
        print(f"\nError: Consumer group '{group.id}' does not exist.")
    elif group.state == "Empty":
        tell(f"\nConsumer group '{group.id}' has no active members.")
    elif group.state in _MOVING:
        tell(f"\nWarning: Consumer group '{group.id}' is rebalancing.")
    return group.state != "Dead" and rows > 0


class _Row(NamedTuple):
    group: str
    topic: str
    partition: str
    leader_epoch: str
    committed: str
    end_offset: str
    lag: str
    member: str
    host: str
    client: str


_TITLES = _Row(
    "GROUP",
    "TOPIC",
    "PARTITION",
    "LEADER-EPOCH",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
)


def _rows(client: Admin, group: GroupDescription) -> list[_Row]:
    """Return the rows of members, those with most partitions first, then of committed partitions without a member."""
    from ottla.client import OffsetSpec

    committed = client.list_group_offsets(group.id)
    assigned = {tp for member in group.members for tp in member.assignment}
    partitions = sorted({*committed, *assigned})
    topics = client.describe_topics(dict.fromkeys(partition.topic for partition in partitions)).check()
    led = {
        (name, partition.partition)
        for name, topic in topics.items()
        for partition in topic.partitions
        if partition.leader
    }
    ends = client.list_offsets(
        dict.fromkeys(
            (partition for partition in partitions if (partition.topic, partition.partition) in led), OffsetSpec.LATEST
        )
    ).check()

    def row(tp: TopicPartition, member: MemberDescription | None) -> _Row:
        at = committed.get(tp)
        end = ends[tp].offset if tp in ends else None
        lag = None if at is None or end is None else end - at.offset
        place = (tp.topic, str(tp.partition), _text(None if at is None else at.leader_epoch))
        where = ("-", "-", "-") if member is None else (member.id, member.host, member.client_id)
        return _Row(group.id, *place, _text(None if at is None else at.offset), _text(end), _text(lag), *where)

    rows = []
    for member in sorted(group.members, key=lambda assignee: -len(assignee.assignment)):
        rows += [row(tp, member) for tp in sorted(member.assignment)]
    return rows + [row(partition, None) for partition in partitions if partition not in assigned]


def _text(value: object) -> str:
    return "-" if value is None else str(value)


def _print_offsets(rows: list[_Row], *, verbose: bool) -> None:
    widths = {
        name: max([15, *(len(getattr(row, name)) for row in rows)]) for name in ("group", "topic", "member", "host")
    }
    for row in (_TITLES, *rows):
        line = f"\n{row.group:<{widths['group']}} {row.topic:<{widths['topic']}} {row.partition:<10} "
        line += f"{row.leader_epoch:<15} " if verbose else ""
        line += f"{row.committed:<15} {row.end_offset:<15} {row.lag:<15} "
        print(line + f"{row.member:<{widths['member']}} {row.host:<{widths['host']}} {row.client}", end="")
    print()


def _print_members(group: GroupDescription, *, verbose: bool) -> None:
    titles = ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    titles += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT", "UPGRADED"]
    rows = [_member(group, member) for member in group.members] if group.state != "Dead" else []
    least = [15, 15, 17, 15, 15, 15, 15, 20, 15, 20, 0]
    measured = {0, 1, 2, 3, 4, 7, 9}
    widths = [
        max([width, *(len(row[index]) for row in rows)]) if index in measured else width
        for index, width in enumerate(least)
    ]
    shown = [0, 1, *([2] if any(member.instance_id for member in group.members) else []), 3, 4, 5]
    modern = {member.upgraded for member in group.members} >= {True, False}
    for line in [titles, *rows]:
        text = "".join(f"{line[index]:<{widths[index]}} " for index in shown)
        if verbose:
            text += " ".join(f"{line[index]:<{widths[index]}}" for index in range(6, 10))
            text += f" {line[10]}" if modern else ""
        print(("\n" if line is titles else "") + text)


def _member(group: GroupDescription, member: MemberDescription) -> list[str]:
    return [
        group.id,
        member.id,
        member.instance_id or "",
        member.host,
        member.client_id,
        str(len(member.assignment)),
        _text(member.epoch),
        assignment(member.assignment),
        _text(group.assignment_epoch),
        assignment(member.target_assignment or ()),
        _text(None if member.upgraded is None else str(member.upgraded).lower()),
    ]


def assignment(partitions: Iterable[TopicPartition]) -> str:
    """Format partitions as topic:0,1;other:2, or - for none."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return ";".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in sorted(topics.items())) or "-"


def _print_state(group: GroupDescription, *, verbose: bool) -> None:
    node = group.coordinator
    coordinator = f"{node.host}:{node.port}  ({node.id})"
    titles = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    row = [group.id, coordinator, group.assignor or "-", group.state]
    widths = [max(15, len(group.id)), max(25, len(coordinator)), 20, 20]
    if verbose:
        titles += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        row += [_text(group.epoch), _text(group.assignment_epoch)]
        widths += [15, 25]
    for line in ([*titles, "#MEMBERS"], [*row, str(len(group.members))]):
        cells = [f"{cell:<{width}}" for cell, width in zip(line, widths, strict=False)]
        print("\n" + " ".join([*cells, line[-1]]), end="")
    print()
