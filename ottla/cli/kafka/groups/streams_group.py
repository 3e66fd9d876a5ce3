"""kafka-streams-groups: list, describe, reset and delete groups of Kafka Streams applications (KIP-1071)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cli.kafka.groups.consumer_group_reset import RESET_OPTIONS, SPECIFICATIONS
from ottla.cli.kafka.program.error import caused
from ottla.cli.kafka.program.option import (
    BOOTSTRAP,
    COMMAND_CONFIG,
    Given,
    Option,
    Refused,
    Usage,
    forbid,
    help_text,
    int64,
    require,
)
from ottla.cli.kafka.program.tool import Failed, admin, admin_of, command, tell
from ottla.kernel.error import KafkaError, OttlaError

if TYPE_CHECKING:
    from ottla.client import Admin
    from ottla.client.admin.result import GroupListing

_ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
_STATES = ("Empty", "NotReady", "Stable", "Assigning", "Reconciling", "Dead")
OPTIONS = (
    BOOTSTRAP,
    COMMAND_CONFIG,
    Option("group", "Streams group; may be repeated.", "streams group"),
    Option("input-topic", "Source topic, or TOPIC:0,1; may be repeated.", "topic"),
    Option("all-input-topics", "All source topics of the group."),
    Option("list", "List the streams groups."),
    Option("describe", "Show the offsets, members or state of a group."),
    Option("all-groups", "All streams groups."),
    Option("delete", "Delete groups."),
    Option("delete-offsets", "Delete the committed offsets of topics."),
    Option("timeout", "Timeout of each call.", "timeout (ms)", int64, default=30000),
    Option(
        "state", "Describe the state; with --list, show the states.", "", optional=True, only_with=("describe", "list")
    ),
    Option("members", "Describe the members.", only_with=("describe",)),
    Option("offsets", "Describe the offsets; the default without --members and --state.", only_with=("describe",)),
    Option("verbose", "Describe in more detail.", only_with=("describe",)),
    Option("reset-offsets", "Reset the committed offsets of an application that is not running."),
    *RESET_OPTIONS,
    Option("delete-internal-topic", "Internal topic to delete as well; may be repeated.", ""),
    Option("delete-all-internal-topics", "Delete all internal topics of the group as well."),
    Option("dry-run", "Only show what --reset-offsets would change."),
    Option("execute", "Carry out --reset-offsets."),
    Option("export", "Print the offsets of --reset-offsets as CSV."),
)
_ABOUT = "This tool helps to list, or describe streams groups."


def main() -> None:
    """The console script."""
    command(OPTIONS, _ABOUT, _run, usage_when_refused=True)


def _run(given: Given) -> int:
    _check(given)
    if sum(action in given for action in _ACTIONS) != 1:
        tell(
            "Command must include exactly one action: --list, --describe, --delete, --reset-offsets, or "
            "--delete-offsets.",
            help_text(OPTIONS),
        )
        return 1
    properties = {**admin_of(given), "default.api.timeout.ms": str(given["timeout"])}
    try:
        with admin(given["bootstrap-server"], properties) as client:
            _act(given, client)
    except KafkaError as error:
        print(f"\nError: Executing streams group command failed due to {caused(error)}")
        tell(f"java.util.concurrent.ExecutionException: {caused(error)}")
        return 1
    except (OttlaError, Failed) as error:
        print(f"\nError: Executing streams group command failed due to {error}")
        tell(str(error))
        return 1
    return 0


def _act(given: Given, client: Admin) -> None:
    if "list" in given:
        _list(given, client)
    elif "describe" in given:
        from ottla.cli.kafka.groups.streams_group_view import describe

        for group in chosen(given, client):
            describe(given, client, group)
    else:
        from ottla.cli.kafka.groups.streams_group_change import delete, delete_offsets, reset

        if "delete" in given:
            delete(given, client)
        elif "reset-offsets" in given:
            reset(given, client)
        else:
            delete_offsets(given, client)


# ---- what goes together


def _check(given: Given) -> None:
    require(given, "bootstrap-server")
    if "describe" in given:
        _takes_a_group(given, "describe")
        if sum(name in given for name in ("members", "offsets", "state")) > 1:
            raise Usage("Option [describe] takes at most one of these options: [members], [offsets], [state]")
        if given["state"] is not None:
            raise Usage("Option [describe] does not take a value for [state]")
    if "delete" in given:
        _takes_a_group(given, "delete")
        if "input-topic" in given or "all-input-topics" in given:
            raise Usage("Kafka Streams does not support topic-specific offset deletion from a streams group.")
    if "delete-offsets" in given:
        _check_delete_offsets(given)
    if "reset-offsets" in given:
        _check_reset(given)
    _check_internal_topics(given)
    if ("dry-run" in given or "execute" in given) and "reset-offsets" not in given:
        raise Usage("Only Option [reset-offsets] accepts [execute] or [dry-run]")
    forbid(given, "list", ("members", "offsets"))
    forbid(given, "group", ("all-groups",))
    forbid(given, "group", ("list",))
    forbid(given, "input-topic", ("list", "describe", "delete"))


def _takes_a_group(given: Given, action: str) -> None:
    if "group" not in given and "all-groups" not in given:
        raise Usage(f"Option [{action}] takes one of these options: [all-groups], [group]")


def _check_delete_offsets(given: Given) -> None:
    if ("input-topic" not in given and "all-input-topics" not in given) or "group" not in given:
        raise Usage(
            "Option [delete-offsets] takes the [group] and one of these options: [all-input-topics], [input-topic]"
        )
    groups = given.values("group")
    if len(groups) > 1:
        names = ", ".join(groups)
        raise Usage(f"Option [delete-offsets] supports only one [group] at a time, but found: [{names}]")


def _check_reset(given: Given) -> None:
    if "dry-run" in given and "execute" in given:
        raise Usage("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if "dry-run" not in given and "execute" not in given:
        raise Usage("Option [reset-offsets] takes the option: [execute] or [dry-run]")
    _takes_a_group(given, "reset-offsets")
    for specification in SPECIFICATIONS:
        forbid(given, specification, [other for other in SPECIFICATIONS if other != specification])


def _check_internal_topics(given: Given) -> None:
    name = "delete-all-internal-topics"
    if name in given:
        if "reset-offsets" not in given and "delete" not in given:
            raise Usage(f"Option [{name}] takes one of these options: [delete], [reset-offsets]")
        if "reset-offsets" in given and "execute" not in given:
            raise Usage(f"Option [{name}] takes [execute] when [reset-offsets] is used.")
    elif "delete-internal-topic" in given and ("reset-offsets" not in given or "execute" not in given):
        raise Usage("Option [delete-internal-topic] takes [reset-offsets] when [execute] is used.")


# ---- which groups


def streams_groups(client: Admin, states: list[str] | None = None) -> list[GroupListing]:
    """Return all streams groups, or those in one of these states."""
    from ottla.client import GroupType

    return client.list_groups(states=states or (), types=[GroupType.STREAMS])


def chosen(given: Given, client: Admin) -> list[str]:
    """Return the groups on the command line."""
    if "all-groups" in given:
        return [listing.id for listing in streams_groups(client)]
    groups: list[str] = given.values("group")
    return list(dict.fromkeys(groups))


def _list(given: Given, client: Admin) -> None:
    if "state" not in given:
        for listing in streams_groups(client):
            print(listing.id)
        return
    text = given["state"] or ""
    known = {name.lower(): name for name in _STATES}
    wanted = [part.strip().lower().replace("_", "") for part in text.split(",") if part]
    if any(name not in known for name in wanted):
        raise Refused(f"Invalid state list '{text}'. Valid states are: {', '.join(_STATES)}")
    groups = streams_groups(client, [known[name] for name in wanted])
    width = max([15, *(len(listing.id) for listing in groups)])
    for group, state in [("GROUP", "STATE"), *((listing.id, listing.state) for listing in groups)]:
        print(f"{group:<{width}} {state}")
