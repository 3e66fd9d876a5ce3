"""`ottla groups`: list and describe groups, see their lag, reset their offsets, delete them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.option import Commands, admin, as_json, cluster, complete_group, complete_topic, confirm, yes_option
from ottla.cli.pattern import expand
from ottla.cli.place import offsets_at
from ottla.kernel.error import OttlaError
from ottla.operations import offsets

if TYPE_CHECKING:
    from rich.text import Text

    from ottla.client import Admin, TopicPartition

_STATES = {"Stable": "green", "Empty": "dim", "Dead": "red"}


@click.group(cls=Commands, invoke_without_command=True)
@cluster
@as_json
@click.pass_context
def groups(context: click.Context, bootstrap: str, client: tuple[str, ...], as_json: bool) -> None:
    """List and describe groups, see their lag, reset their offsets. Alone it lists."""
    if context.invoked_subcommand is None:
        context.invoke(list_, bootstrap=bootstrap, client=client, as_json=as_json)


@groups.command("list")
@cluster
@as_json
def list_(bootstrap: str, client: tuple[str, ...], as_json: bool) -> None:
    """All groups with their state and how far they are behind."""
    from ottla.cli import screen
    from ottla.operations.group_view import look

    with admin(bootstrap, client) as ask:
        found: list[dict[str, Any]] = []
        for listing in sorted(ask.list_groups(), key=lambda each: each.id):
            about = look(ask, listing.id, listing.type)
            found.append(
                {
                    "group": listing.id,
                    "type": listing.type.value,
                    "state": listing.state,
                    "members": len(about.members),
                    "lag": about.lag,
                }
            )
    if as_json:
        screen.document(found)
        return
    columns = [
        screen.Column("group", "name"),
        screen.Column("type"),
        screen.Column("state"),
        screen.Column("members", numeric=True),
        screen.Column("lag", numeric=True),
    ]
    rows = [(each["group"], each["type"], _state(each["state"]), each["members"], _lag(each["lag"])) for each in found]
    screen.table(columns, rows, empty="there is no group; ottla consume TOPIC -g NAME makes one")


def _state(state: str) -> Text:
    from ottla.cli import screen

    return screen.coloured(state, _STATES.get(state, "yellow"))


def _lag(lag: int | None) -> Text | None:
    from ottla.cli import screen

    if lag is None:
        return None
    return screen.coloured(f"{lag:,}" if screen.on_terminal() else lag, "green" if lag == 0 else "yellow")


@groups.command()
@cluster
@click.argument("group", shell_complete=complete_group)
@as_json
def describe(bootstrap: str, client: tuple[str, ...], group: str, as_json: bool) -> None:
    """A group: its members, and for every partition how far it is."""
    from ottla.cli import screen
    from ottla.operations.group_view import look, type_of

    with admin(bootstrap, client) as ask:
        [group] = expand([group], [each.id for each in ask.list_groups()], "group")[:1]
        found = look(ask, group, type_of(ask, group))
    if as_json:
        screen.document({"group": group, **asdict(found)})
        return
    about = f"{found.type}, {found.state}, coordinator node {found.coordinator}"
    screen.heading(group, about if found.lag is None else f"{about}, lag {found.lag:,}")
    _print_partitions(found.partitions)
    if found.members and screen.on_terminal():
        screen.heading("\nmembers")
        columns = [screen.Column("member", "name"), screen.Column("client"), screen.Column("host")]
        columns.append(screen.Column("tasks" if found.type == "streams" else "partitions", numeric=True))
        rows = [(each["member"], each["client"], each["host"], each["partitions"]) for each in found.members]
        screen.table(columns, rows)


def _print_partitions(partitions: list[dict[str, Any]]) -> None:
    from ottla.cli import screen

    columns = [
        screen.Column("topic", "name"),
        screen.Column("partition", numeric=True),
        screen.Column("committed", numeric=True),
        screen.Column("end", numeric=True),
        screen.Column("lag", numeric=True),
        screen.Column("member", "dim"),
    ]
    rows = [
        (each["topic"], each["partition"], each["committed"], each["end_offset"], _lag(each["lag"]), each["member"])
        for each in partitions
    ]
    screen.table(columns, rows, empty="it has committed nothing and reads nothing")


@groups.command()
@cluster
@click.argument("group", shell_complete=complete_group)
@click.argument("topics", nargs=-1, metavar="[TOPIC...]", shell_complete=complete_topic)
@click.option("--to", "target", metavar="WHERE", help="earliest, latest, an offset, -N, 2h (ago), or a time.")
@click.option(
    "--by", "shift", type=int, metavar="N", help="Go this many records ahead of the committed offset; -N: back."
)
@click.option("-p", "--partition", "only", type=int, multiple=True, help="Only this partition; may be repeated.")
@click.option("-n", "--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@yes_option
@as_json
def reset(
    bootstrap: str,
    client: tuple[str, ...],
    group: str,
    topics: tuple[str, ...],
    target: str | None,
    shift: int | None,
    only: tuple[int, ...],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Set where a group without members goes on reading, in TOPICs or in all that it has read.

    WHERE is earliest, latest, an offset (100), so many before the end (-100), a time (2026-11-21T06:00), or how long
    ago (90s, 15min, 2h, 3d).
    """
    from ottla.cli import screen
    from ottla.operations.group_view import type_of

    if (target is None) == (shift is None):
        raise click.UsageError("where to? give --to WHERE, or --by N")
    with admin(bootstrap, client) as ask:
        type_ = type_of(ask, group)
        before = offsets.committed(ask, group, type_)
        partitions = _meant(ask, group, topics, only, list(before))
        goals = _goals(ask, partitions, before, target, shift)
        if not dry_run:
            check_empty(ask, group)
            moved = sum(before.get(each) != goals[each] for each in partitions)
            confirm(f"move {group} in {moved} of {len(partitions)} partitions? (-n shows where to)", yes=yes)
            offsets.commit(ask, group, type_, goals)
    rows = [
        {"topic": each.topic, "partition": each.partition, "before": before.get(each), "after": goals[each]}
        for each in partitions
    ]
    if as_json:
        screen.document(rows)
        return
    columns = [screen.Column("topic", "name"), screen.Column("partition", numeric=True)]
    columns += [screen.Column("before", numeric=True), screen.Column("after", numeric=True)]
    screen.table(columns, [tuple(each.values()) for each in rows])
    if dry_run:
        screen.hint("nothing was changed (--dry-run)")
    else:
        screen.done(f"{group} goes on there")


def check_empty(ask: Admin, group: str) -> None:
    """OttlaError that names the members of a group which has some: they would not hear of a new place."""
    from ottla.operations.group_view import look

    listed = next((each for each in ask.list_groups() if each.id == group), None)
    members = look(ask, listed.id, listed.type).members if listed is not None else []
    if members:
        who = ", ".join(sorted({f"{each['client']} on {each['host']}" for each in members})[:3])
        many = f"{len(members)} member{'' if len(members) == 1 else 's'}"
        raise OttlaError(f"{group} has {many} ({who}): stop them first, then reset it; -n shows where it would go")


def _meant(
    ask: Admin, group: str, topics: tuple[str, ...], only: tuple[int, ...], read: list[TopicPartition]
) -> list[TopicPartition]:
    """The partitions of the topics that are named; else those that the group has read."""
    if not topics:
        if not read:
            raise OttlaError(f"{group} has read nothing yet; name the topics where it should begin")
        return sorted(each for each in read if not only or each.partition in only)
    found = [each for topic in topics for each in offsets.partitions_of(ask, topic)]
    chosen = [each for each in found if not only or each.partition in only]
    if not chosen:
        raise OttlaError(f"{', '.join(topics)} has no partition {', '.join(map(str, only))}")
    return chosen


def _goals(
    ask: Admin,
    partitions: list[TopicPartition],
    before: dict[TopicPartition, int],
    target: str | None,
    shift: int | None,
) -> dict[TopicPartition, int]:
    if target is not None:
        return offsets_at(ask, partitions, target)
    starts, ends = offsets.bounds(ask, partitions)
    if unread := [each for each in partitions if each not in before]:
        raise OttlaError(f"the group is nowhere in {unread[0]} yet: there --to is needed, not --by")
    return offsets.within({each: before[each] + (shift or 0) for each in partitions}, starts, ends)


@groups.command()
@cluster
@click.argument("names", nargs=-1, required=True, metavar="GROUP...", shell_complete=complete_group)
@yes_option
@as_json
def delete(bootstrap: str, client: tuple[str, ...], names: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Delete groups without members, with all that they have committed."""
    from ottla.cli import screen

    with admin(bootstrap, client) as ask:
        names = tuple(expand(names, [each.id for each in ask.list_groups()], "group"))
        confirm(
            f"delete {', '.join(names)} with all that {'it has' if len(names) == 1 else 'they have'} committed?",
            yes=yes,
        )
        results = ask.delete_groups(names)
    for name in names:
        if name in results.errors:
            raise OttlaError(f"{name}: {screen.in_words(results.errors[name])}")
    screen.told(as_json, {"deleted": list(names)}, *(f"deleted {name}" for name in names))


@groups.command()
@cluster
@click.argument("group", shell_complete=complete_group)
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topic)
@yes_option
@as_json
def forget(
    bootstrap: str, client: tuple[str, ...], group: str, topics: tuple[str, ...], yes: bool, as_json: bool
) -> None:
    """Let a group forget how far it is in TOPICs that it does not read now."""
    from ottla.cli import screen
    from ottla.client import GroupType
    from ottla.operations.group_view import type_of

    question = f"let {group} forget how far it is in {', '.join(topics)}?"
    with admin(bootstrap, client) as ask:
        if type_of(ask, group) is GroupType.SHARE:
            confirm(question, yes=yes)
            ask.delete_share_group_offsets(group, topics).check()
        else:
            read = [each for each in ask.list_group_offsets(group) if each.topic in topics]
            if missing := sorted(set(topics) - {each.topic for each in read}):
                raise OttlaError(f"{group} has committed nothing for {missing[0]}")
            confirm(question, yes=yes)
            ask.delete_group_offsets(group, read).check()
    screen.told(as_json, {"group": group, "forgot": list(topics)}, f"{group} has forgotten {', '.join(topics)}")
