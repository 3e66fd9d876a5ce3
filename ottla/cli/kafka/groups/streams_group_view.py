"""`kafka-streams-groups --describe`: offsets, members or state of a group."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from ottla.cli.kafka.program.option import Given
from ottla.cli.kafka.program.tool import Failed

if TYPE_CHECKING:
    from ottla.client import Admin, TopicPartition
    from ottla.client.admin.streams_group import StreamsGroupDescription, StreamsTasks, Task


def describe(given: Given, client: Admin, group: str) -> None:
    """Print the requested view of a group."""
    description = client.describe_streams_group(group)
    verbose = "verbose" in given
    if "members" in given:
        _print_members(description, verbose=verbose)
    elif "state" in given:
        _print_state(description, verbose=verbose)
    else:
        _print_offsets(client, description, verbose=verbose)


def source_topics(group: StreamsGroupDescription) -> list[str]:
    """Return the topics that the application reads, without those that it writes itself."""
    return list(dict.fromkeys(topic for part in group.subtopologies for topic in part.source_topics))


def _tell_state(group: StreamsGroupDescription) -> None:
    if group.state == "Dead":
        print(f"\nError: Streams group '{group.id}' does not exist.")
    elif group.state == "Empty":
        print(f"\nError: Streams group '{group.id}' has no active members.")


def _print_rows(rows: list[tuple[object, ...]], widths: list[int]) -> None:
    for row in rows:
        cells = [f"{cell!s:<{width}}" for cell, width in zip(row, widths, strict=False)]
        print(" ".join([*cells, *map(str, row[len(widths) :])]))


def _print_members(group: StreamsGroupDescription, *, verbose: bool) -> None:
    if group.state == "Dead" or not group.members:
        return
    _tell_state(group)
    widths = [max([15, *(len(text) for text in column)]) for column in _columns(group)]
    members = sorted(group.members, key=lambda entry: entry.id)
    rows: list[tuple[object, ...]]
    if not verbose:
        rows = [("GROUP", "MEMBER", "PROCESS", "CLIENT-ID", "ASSIGNMENTS")]
        rows += [
            (group.id, member.id, member.process_id, member.client_id, _tasks(member.assignment)) for member in members
        ]
        _print_rows(rows, [max(15, len(group.id)), *widths])
        return
    # Apache's tool prints no blank after the third column.
    heads = ("GROUP", "TARGET-ASSIGNMENT-EPOCH", f"{'TOPOLOGY-EPOCH':<15}{'MEMBER':<{widths[0]}}", "MEMBER-PROTOCOL")
    rows = [(*heads, "MEMBER-EPOCH", "PROCESS", "CLIENT-ID", "ASSIGNMENTS")]
    for member in members:
        assigned = _tasks(member.assignment) + _tasks(member.target, "TARGET-")
        topology = f"{member.topology_epoch:<15}{member.id:<{widths[0]}}"
        cells = (
            group.id,
            group.assignment_epoch,
            topology,
            "streams",
            member.epoch,
            member.process_id,
            member.client_id,
        )
        rows.append((*cells, assigned))
    _print_rows(rows, [max(15, len(group.id)), 25, 15 + widths[0], 15, 15, widths[1], widths[2]])


def _columns(group: StreamsGroupDescription) -> list[list[str]]:
    members = group.members
    return [
        [member.id for member in members],
        [member.process_id for member in members],
        [member.client_id for member in members],
    ]


def _tasks(assignment: StreamsTasks, before: str = "") -> str:
    kinds = (("ACTIVE", assignment.active), ("STANDBY", assignment.standby), ("WARMUP", assignment.warmup))
    return "".join(f"{before}{kind}: {_shown(tasks)}" for kind, tasks in kinds if tasks)


def _shown(tasks: tuple[Task, ...]) -> str:
    parts = groupby(tasks, key=lambda task: task[0])
    return "".join(f"{name}:[{','.join(str(number) for _, number in part)}]; " for name, part in parts)


def _print_state(group: StreamsGroupDescription, *, verbose: bool) -> None:
    _tell_state(group)
    coordinator = f"{group.coordinator.host}:{group.coordinator.port} ({group.coordinator.id})"
    heads, cells = ["GROUP", "COORDINATOR (ID)", "STATE"], [group.id, coordinator, group.state]
    widths = [max(15, len(group.id)), max(25, len(coordinator)), 25]
    if verbose:
        heads += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        cells += [str(group.epoch), str(group.assignment_epoch)]
        widths += [15, 25]
    _print_rows([(*heads, "#MEMBERS"), (*cells, len(group.members))], widths)


def _print_offsets(client: Admin, group: StreamsGroupDescription, *, verbose: bool) -> None:
    from ottla.client import OffsetSpec

    partitions = _partitions(group)
    starts = client.list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST)).check()
    ends = client.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST)).check()
    committed = client.list_group_offsets(group.id)
    if group.state == "Dead" or not group.members:
        return
    _tell_state(group)
    heads = ("CURRENT-OFFSET", "LEADER-EPOCH", "LOG-END-OFFSET") if verbose else ()
    rows: list[tuple[object, ...]] = [("GROUP", "TOPIC", "PARTITION", *heads, "OFFSET-LAG")]
    for partition in partitions:
        end = ends[partition].offset
        committed_offset = committed.get(partition)
        lag = end - (starts[partition].offset if committed_offset is None else committed_offset.offset)
        epoch = (
            "-" if committed_offset is None or committed_offset.leader_epoch is None else committed_offset.leader_epoch
        )
        cells = ("-" if committed_offset is None else committed_offset.offset, epoch, end) if verbose else ()
        rows.append((group.id, partition.topic, partition.partition, *cells, lag))
    widths = [max(15, len(group.id)), max([15, *(len(partition.topic) for partition in partitions)]), 10]
    _print_rows(rows, [*widths, *([15] * 4 if verbose else [])])


def _partitions(group: StreamsGroupDescription) -> list[TopicPartition]:
    """Return the partitions that the members' active tasks read."""
    from ottla.client import TopicPartition

    topics = {
        subtopology.id: (*subtopology.source_topics, *subtopology.repartition_source_topics)
        for subtopology in group.subtopologies
    }
    partitions = set()
    for member in group.members:
        for part, number in member.assignment.active:
            if part not in topics:
                raise Failed(f"Subtopology {part} not found in group description!")
            partitions |= {TopicPartition(topic, number) for topic in topics[part]}
    return sorted(partitions)
