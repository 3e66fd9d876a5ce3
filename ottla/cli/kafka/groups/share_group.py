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
from ottla.cli.kafka.program.option import (
    BOOTSTRAP,
    COMMAND_CONFIG,
    Given,
    Option,
    Refused,
    Usage,
    forbid,
    int64,
    require,
)
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
    Option("timeout", "Timeout of name call.", "timeout (ms)", int64, default=30000),
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
    if sum(action in given for action in _ACTIONS) != 1:
        actions = ", ".join(f"--{action}" for action in _ACTIONS)
        raise Usage(f"Command must include exactly one action: {actions}.")
    properties = {**admin_of(given), "default.api.timeout.ms": str(given["timeout"])}
    act = {
        "list": _list,
        "describe": _describe,
        "delete": _delete,
        "reset-offsets": _reset,
        "delete-offsets": _delete_offsets,
    }
    try:
        with admin(given["bootstrap-server"], properties) as client:
            return act[next(action for action in _ACTIONS if action in given)](given, client)
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
        if sum(name in given for name in ("members", "offsets", "state")) > 1:
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
    if not any(name in given for name in _SPECIFICATIONS):
        raise Usage("Option [reset-offsets] takes one of these options: [to-datetime], [to-earliest], [to-latest]")
    for name in _SPECIFICATIONS:
        forbid(given, name, [other for other in _SPECIFICATIONS if other != name])


def _share_groups(client: Admin, states: list[str] | None = None) -> list[GroupListing]:
    from ottla.client import GroupType

    return client.list_groups(states=states or (), types=[GroupType.SHARE])


def _list(given: Given, client: Admin) -> int:
    if "state" not in given:
        for listing in _share_groups(client):
            print(listing.id)
        return 0
    known = {name.lower(): name for name in _STATES}
    wanted = [part.strip().lower() for part in (given["state"] or "").split(",") if part]
    if any(name not in known for name in wanted):
        raise Usage(f"Invalid state list '{given['state']}'. Valid states are: {', '.join(_STATES)}")
    groups = _share_groups(client, [known[name] for name in wanted])
    width = max([15, *(len(listing.id) for listing in groups)])
    for group, state in [("GROUP", "STATE"), *((listing.id, listing.state) for listing in groups)]:
        print(f"{group:<{width}} {state}")
    return 0


def _describe(given: Given, client: Admin) -> int:
    groups = [listing.id for listing in _share_groups(client)] if "all-groups" in given else given.values("group")
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
    for member in sorted(group.members, key=lambda entry: entry.id):
        counts = (str(len(member.assignment)), str(member.epoch))
        shown = assignment(member.assignment) if member.assignment else ""
        rows.append((group.id, member.id, member.host, member.client_id, *counts, shown))
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
    topic_width = max([15, *(len(tp.topic) for tp in offsets)])
    rows = [("GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "START-OFFSET", "LAG")]
    for tp in sorted(offsets):
        committed = offsets[tp]
        figures = (
            (committed.leader_epoch, committed.start_offset, committed.lag)
            if committed.start_offset >= 0
            else (None,) * 3
        )
        epoch, start, lag = ("-" if figure is None else str(figure) for figure in figures)
        rows.append((group, tp.topic, str(tp.partition), epoch, start, lag))
    for name, topic, partition, epoch, start, lag in rows:
        line = f"\n{name:<{group_width}} {topic:<{topic_width}} {partition:<10} "
        print(line + (f"{epoch:<13} " if verbose else "") + f"{start:<13} {lag}", end="")
    print()


def _delete(given: Given, client: Admin) -> int:
    listings = _share_groups(client)
    names = [listing.id for listing in listings] if "all-groups" in given else given.values("group")
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


def _delete_offsets(given: Given, client: Admin) -> int:
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
