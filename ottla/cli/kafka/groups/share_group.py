"""kafka-share-groups: list, describe, reset and delete share groups (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cli.kafka.groups.consumer_group_reset import (
    check_partitions,
    from_time,
    partitions_in,
    print_offsets,
    timestamp,
)
from ottla.cli.kafka.groups.consumer_group_view import assignment
from ottla.cli.kafka.groups.deletion import OF_THE_GROUP, print_deletion, refused
from ottla.cli.kafka.program.error import caused, message
from ottla.cli.kafka.program.option import BOOTSTRAP, COMMAND_CONFIG, Given, Option, Refused, Usage, forbid, require
from ottla.cli.kafka.program.tool import Failed, admin, admin_of, command, tell
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.operations.offsets import listed

if TYPE_CHECKING:
    from ottla.client import Admin
    from ottla.client.admin.result import GroupDescription, GroupListing

_ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
_STATES = ("Empty", "Dead", "Stable")
_SPECIFICATIONS = ("to-datetime", "to-earliest", "to-latest")
OPTIONS = (
    BOOTSTRAP,
    COMMAND_CONFIG,
    Option("group", "Share group; may be repeated.", "share group"),
    Option("topic", "Topic whose offsets to delete or reset; may be repeated.", "topic"),
    Option("all-topics", "All topics of the group, for --reset-offsets."),
    Option("list", "List the share groups."),
    Option("describe", "Show the offsets, members or state of a group."),
    Option("all-groups", "All share groups."),
    Option("delete", "Delete groups."),
    Option("timeout", "Timeout of each call.", "timeout (ms)", int, default=30000),
    Option("reset-offsets", "Reset the start offsets of a group without members."),
    Option("delete-offsets", "Delete the committed offsets of topics."),
    Option("dry-run", "Only show what --reset-offsets would change."),
    Option("execute", "Carry out --reset-offsets."),
    Option("to-datetime", "Reset to a time, YYYY-MM-DDThh:mm:ss.sss.", "datetime"),
    Option("to-earliest", "Reset to the first offsets."),
    Option("to-latest", "Reset to the end offsets."),
    Option("members", "Describe the members.", only_with=("describe",)),
    Option("offsets", "Describe the offsets; the default without --members and --state.", only_with=("describe",)),
    Option(
        "state", "Describe the state; with --list, show the states.", "", optional=True, only_with=("describe", "list")
    ),
    Option("verbose", "Describe in more detail.", only_with=("describe",)),
)


def main() -> None:
    """The console script."""
    command(OPTIONS, "This tool helps to list, describe, reset and delete share groups.", _run)


def _run(given: Given) -> int:
    _check(given)
    if sum(each in given for each in _ACTIONS) != 1:
        actions = ", ".join(f"--{each}" for each in _ACTIONS)
        raise Usage(f"Command must include exactly one action: {actions}.")
    properties = {**admin_of(given), "default.api.timeout.ms": str(given["timeout"])}
    act = {"list": _list, "describe": _describe, "delete": _delete, "reset-offsets": _reset, "delete-offsets": _forget}
    try:
        with admin(given["bootstrap-server"], properties) as client:
            return act[next(each for each in _ACTIONS if each in given)](given, client)
    except KafkaError as error:
        print(f"\nError: Executing share group command failed due to {caused(error)}")
        tell(f"java.util.concurrent.ExecutionException: {caused(error)}")
    except (OttlaError, Failed, Refused) as error:
        print(f"\nError: Executing share group command failed due to {error}")
        tell(str(error))
    return 0


def _check(given: Given) -> None:
    require(given, "bootstrap-server")
    if "describe" in given:
        if "group" not in given and "all-groups" not in given:
            raise Usage("Option [describe] takes one of these options: [all-groups], [group]")
        if sum(each in given for each in ("members", "offsets", "state")) > 1:
            raise Usage("Option [describe] takes at most one of these options: [members], [offsets], [state]")
        if given["state"] is not None:
            raise Usage("Option [describe] does not take a value for [state]")
    if "delete" in given:
        if "group" not in given and "all-groups" not in given:
            raise Usage("Option [delete] takes the options [group] or [all-groups]")
        if "group" in given and "all-groups" in given:
            raise Usage("Option [delete] takes either [group] or [all-groups], not both.")
        if "topic" in given:
            raise Usage("Option [delete] does not take the option: [topic]")
    if "delete-offsets" in given and ("group" not in given or "topic" not in given):
        raise Usage("Option [delete-offsets] takes the following options: [group], [topic]")
    if "reset-offsets" in given:
        _check_reset(given)
    forbid(given, "group", ("all-groups",))
    forbid(given, "group", ("list",))
    forbid(given, "topic", ("list", "describe"))


def _check_reset(given: Given) -> None:
    if "dry-run" in given and "execute" in given:
        raise Usage("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if "dry-run" not in given and "execute" not in given:
        raise Usage("Option [reset-offsets] takes the option: [execute] or [dry-run]")
    if "group" not in given:
        raise Usage("Option [reset-offsets] takes the option: [group]")
    if "topic" not in given and "all-topics" not in given:
        raise Usage("Option [reset-offsets] takes one of these options: [all-topics], [topic]")
    if not any(each in given for each in _SPECIFICATIONS):
        raise Usage("Option [reset-offsets] takes one of these options: [to-datetime], [to-earliest], [to-latest]")
    for each in _SPECIFICATIONS:
        forbid(given, each, [other for other in _SPECIFICATIONS if other != each])


def _share_groups(client: Admin, states: list[str] | None = None) -> list[GroupListing]:
    from ottla.client import GroupType

    return client.list_groups(states=states or (), types=[GroupType.SHARE])


def _list(given: Given, client: Admin) -> int:
    if "state" not in given:
        for each in _share_groups(client):
            print(each.id)
        return 0
    known = {each.lower(): each for each in _STATES}
    wanted = [each.strip().lower() for each in (given["state"] or "").split(",") if each]
    if any(each not in known for each in wanted):
        raise Usage(f"Invalid state list '{given['state']}'. Valid states are: {', '.join(_STATES)}")
    groups = _share_groups(client, [known[each] for each in wanted])
    width = max([15, *(len(each.id) for each in groups)])
    for group, state in [("GROUP", "STATE"), *((each.id, each.state) for each in groups)]:
        print(f"{group:<{width}} {state}")
    return 0


def _describe(given: Given, client: Admin) -> int:
    groups = [each.id for each in _share_groups(client)] if "all-groups" in given else given.values("group")
    descriptions = {group: client.describe_share_group(group) for group in groups}
    for group in sorted(descriptions):
        if "members" in given:
            _print_members(descriptions[group], verbose="verbose" in given)
        elif "state" in given:
            _print_state(descriptions[group], verbose="verbose" in given)
        else:
            _print_offsets(client, group, verbose="verbose" in given)
    return 0


def _tell_state(group: GroupDescription) -> None:
    if group.state == "Dead":
        print(f"\nError: Share group '{group.id}' does not exist.")
    elif group.state == "Empty":
        tell(f"\nShare group '{group.id}' has no active members.")


def _print_members(group: GroupDescription, *, verbose: bool) -> None:
    _tell_state(group)
    if group.state == "Dead" or not group.members:
        return
    rows = [("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "MEMBER-EPOCH", "ASSIGNMENT")]
    for each in sorted(group.members, key=lambda member: member.id):
        counts = (str(len(each.assignment)), str(each.epoch))
        shown = assignment(each.assignment) if each.assignment else ""
        rows.append((group.id, each.id, each.host, each.client_id, *counts, shown))
    widths = [max([15, *(len(row[index]) for row in rows[1:])]) for index in range(4)] + [12, 13]
    for row in rows:
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)]
        print("\n" + " ".join([*(cells if verbose else cells[:5]), row[6]]), end="")
    print()


def _print_state(group: GroupDescription, *, verbose: bool) -> None:
    _tell_state(group)
    coordinator = f"{group.coordinator.host}:{group.coordinator.port}  ({group.coordinator.id})"
    rows = [("GROUP", "COORDINATOR (ID)", "STATE", "GROUP-EPOCH", "ASSIGNMENT-EPOCH", "#MEMBERS")]
    epochs = (str(group.epoch), str(group.assignment_epoch))
    rows.append((group.id, coordinator, group.state, *epochs, str(len(group.members))))
    widths = [max(15, len(group.id)), max(25, len(coordinator)), 15, 12, 17]
    for row in rows:
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)]
        print("\n" + " ".join([*(cells if verbose else cells[:3]), row[5]]), end="")
    print()


def _print_offsets(client: Admin, group: str, *, verbose: bool) -> None:
    offsets = client.list_share_group_offsets(group, unread=True).check()
    if not offsets:
        print(f"\nShare group '{group}' has no offset information.")
        return
    group_width = max(15, len(group))
    topic_width = max([15, *(len(each.topic) for each in offsets)])
    rows = [("GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "START-OFFSET", "LAG")]
    for each in sorted(offsets):
        found = offsets[each]
        figures = (found.leader_epoch, found.start_offset, found.lag) if found.start_offset >= 0 else (None,) * 3
        epoch, start, lag = ("-" if figure is None else str(figure) for figure in figures)
        rows.append((group, each.topic, str(each.partition), epoch, start, lag))
    for name, topic, partition, epoch, start, lag in rows:
        line = f"\n{name:<{group_width}} {topic:<{topic_width}} {partition:<10} "
        print(line + (f"{epoch:<13} " if verbose else "") + f"{start:<13} {lag}", end="")
    print()


def _delete(given: Given, client: Admin) -> int:
    listings = _share_groups(client)
    names = [each.id for each in listings] if "all-groups" in given else given.values("group")
    groups = list(dict.fromkeys(names))
    failed = refused("Share", listings, groups, "is not a share group")
    errors = client.delete_groups(group for group in groups if group not in failed).errors
    print_deletion("share", groups, failed | {group: caused(error) for group, error in errors.items()})
    return 0


def _reset(given: Given, client: Admin) -> int:
    from ottla.client import OffsetSpec

    group = given["group"]
    try:
        if client.describe_share_group(group).state not in ("Empty", "Dead"):
            tell(f"Share group '{group}' is not empty.")
            return 1
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            tell(message(error))
            return 1
    if "topic" in given:
        partitions = partitions_in(client, given.values("topic"))
    else:
        partitions = sorted(client.list_share_group_offsets(group, unread=True).check())
    check_partitions(client, partitions)
    if "to-datetime" in given:
        offsets = from_time(client, partitions, timestamp(given["to-datetime"]))
    else:
        offsets = listed(client, partitions, OffsetSpec.EARLIEST if "to-earliest" in given else OffsetSpec.LATEST)
    if "execute" in given:
        client.alter_share_group_offsets(group, offsets).check()
    print_offsets({group: offsets})
    return 0


def _forget(given: Given, client: Admin) -> int:
    topics: list[str] = sorted(set(given.values("topic")))
    errors: dict[str, KafkaError] = {}
    try:
        errors = client.delete_share_group_offsets(given["group"], topics).errors
    except KafkaError as error:
        errors = dict.fromkeys(topics, error)
        if error.code in OF_THE_GROUP:
            print(f"\nError: {message(error)}")
        else:
            print(f"\nError: Encounter some unknown error: {caused(error)}")
    width = max([15, *map(len, topics)])
    print(f"\n{'TOPIC':<{width}} STATUS", end="")
    for topic in topics:
        status = f"Error: {message(errors[topic])}" if topic in errors else "Successful"
        print(f"\n{topic:<{width}} {status}", end="")
    print()
    return 0
