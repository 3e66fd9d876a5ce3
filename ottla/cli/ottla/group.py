"""`ottla groups`: list and describe groups, see their lag, reset their offsets, delete them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.option import Commands, admin, as_json, cluster, complete_group, complete_topic, confirm, yes_option
from ottla.cli.pattern import expand
from ottla.cli.place import place, with_time_hint
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.operations.group_offsets import check_empty, plan_forgetting, plan_reset
from ottla.operations.group_view import look, type_of
from ottla.operations.nearest import nearest

if TYPE_CHECKING:
    from rich.text import Text

    from ottla.client import Admin
    from ottla.client.admin.result import GroupListing
    from ottla.operations.group_view import GroupView

_STATES = {"Stable": "green", "Empty": "dim", "Dead": "red"}


@click.group(cls=Commands, invoke_without_command=True)
@cluster
@as_json
@click.pass_context
def groups(context: click.Context, bootstrap: str, client: tuple[str, ...], as_json: bool) -> None:
    """List and describe groups, see their lag, reset their offsets. Without a command, list them."""
    if context.invoked_subcommand is None:
        context.invoke(list_, bootstrap=bootstrap, client=client, as_json=as_json)


@groups.command("list")
@cluster
@as_json
def list_(bootstrap: str, client: tuple[str, ...], as_json: bool) -> None:
    """List the groups with their type, state, members and lag."""
    from ottla.cli import screen
    from ottla.client import GroupType

    with admin(bootstrap, client) as ask:
        documents: list[dict[str, Any]] = []
        for listing in sorted(ask.list_groups(), key=lambda entry: entry.id):
            about = _look(ask, listing)
            if about is not None or listing.type is GroupType.UNKNOWN:
                documents.append(
                    {
                        "group": listing.id,
                        "type": listing.type.value,
                        "state": listing.state,
                        "members": None if about is None else len(about.members),
                        "lag": None if about is None else about.lag,
                    }
                )
    if as_json:
        screen.document(documents)
        return
    columns = [
        screen.Column("group", "name"),
        screen.Column("type"),
        screen.Column("state"),
        screen.Column("members", numeric=True),
        screen.Column("lag", numeric=True),
    ]
    rows = [(row["group"], row["type"], _state(row["state"]), row["members"], _lag(row["lag"])) for row in documents]
    screen.table(columns, rows, empty="there are no groups; ottla consume TOPIC -g NAME creates one")


def _look(ask: Admin, listing: GroupListing) -> GroupView | None:
    """Describe a listed group; None if it has been deleted since, or is of a type that this version does not know."""
    try:
        return look(ask, listing.id, listing.type)
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return None


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
    """Show a group: its members, and the committed offset and lag of every partition."""
    from ottla.cli import screen

    with admin(bootstrap, client) as ask:
        [group] = expand([group], [listing.id for listing in ask.list_groups()], "group")[:1]
        view = look(ask, group, type_of(ask, group))
    if as_json:
        screen.document({"group": group, **asdict(view)})
        return
    about = f"{view.type}, {view.state}, coordinator node {view.coordinator}"
    screen.heading(group, about if view.lag is None else f"{about}, lag {view.lag:,}")
    _print_partitions(view.partitions)
    if view.members and screen.on_terminal():
        screen.heading("\nmembers")
        columns = [screen.Column("member", "name"), screen.Column("client"), screen.Column("host")]
        columns.append(screen.Column("tasks" if view.type == "streams" else "partitions", numeric=True))
        rows = [(member["member"], member["client"], member["host"], member["partitions"]) for member in view.members]
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
        (
            partition["topic"],
            partition["partition"],
            partition["committed"],
            partition["end_offset"],
            _lag(partition["lag"]),
            partition["member"],
        )
        for partition in partitions
    ]
    screen.table(columns, rows, empty="the group has no committed offsets and reads nothing")


@groups.command()
@cluster
@click.argument("group", shell_complete=complete_group)
@click.argument("topics", nargs=-1, metavar="[TOPIC...]", shell_complete=complete_topic)
@click.option(
    "--to", "target", metavar="WHERE", help="New offset: earliest, latest, an offset, -N, a time, or a time ago (2h)."
)
@click.option(
    "--by", "shift", type=int, metavar="N", help="Move this many records ahead of the committed offset; -N: back."
)
@click.option("-p", "--partition", "only", type=int, multiple=True, help="Only this partition; may be repeated.")
@click.option("--create", is_flag=True, help="Create the group if it does not exist.")
@click.option("-n", "--dry-run", is_flag=True, help="Only show what would change.")
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
    create: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Reset the committed offsets of a group without members, in TOPICs or in all that it has read.

    WHERE is earliest, latest, an offset (100), a number of records before the end (-100), a time (2026-11-21T06:00), or
    a time ago (90s, 15min, 2h, 3d).
    """
    from ottla.cli import screen

    if (target is None) == (shift is None):
        raise click.UsageError("expected either --to WHERE or --by N")
    with admin(bootstrap, client) as ask:
        if not create:
            _check_exists(ask, group)
        with with_time_hint(target):
            plan = plan_reset(
                ask, group, None if target is None else place(target), shift=shift or 0, topics=topics, only=only
            )
        if not dry_run:
            check_empty(ask, group)
            among = screen.counted(len(plan.goals), "partition")
            confirm(f"change the offsets of {group} in {plan.moved} of {among}? (-n shows them)", yes=yes)
            plan.commit(ask)
    rows = [
        {"topic": tp.topic, "partition": tp.partition, "before": plan.before.get(tp), "after": goal}
        for tp, goal in plan.goals.items()
    ]
    if as_json:
        screen.document(rows)
        return
    columns = [screen.Column("topic", "name"), screen.Column("partition", numeric=True)]
    columns += [screen.Column("before", numeric=True), screen.Column("after", numeric=True)]
    screen.table(columns, [tuple(row.values()) for row in rows])
    if dry_run:
        screen.hint("nothing was changed (--dry-run)")
    else:
        screen.done(f"{group} continues from these offsets")


def _check_exists(ask: Admin, group: str) -> None:
    """Raise OttlaError, with the nearest name, for a missing group: committing offsets would create it."""
    names = [listing.id for listing in ask.list_groups()]
    if group not in names:
        hint = nearest(group, names, "group")
        stop = "" if hint.endswith("?") else ";"
        absent = OttlaError(f"there is no group {group}{hint}{stop} use --create to create it with these offsets")
        raise absent from KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)


@groups.command()
@cluster
@click.argument("names", nargs=-1, required=True, metavar="GROUP...", shell_complete=complete_group)
@yes_option
@as_json
def delete(bootstrap: str, client: tuple[str, ...], names: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Delete groups without members, with their committed offsets."""
    from ottla.cli import screen

    with admin(bootstrap, client) as ask:
        names = tuple(expand(names, [group.id for group in ask.list_groups()], "group"))
        confirm(
            f"delete {', '.join(names)} with {'its' if len(names) == 1 else 'their'} committed offsets?",
            yes=yes,
        )
        results = ask.delete_groups(names)
    deleted = [name for name in names if name not in results.errors]
    screen.report_each(as_json, {"deleted": deleted}, [f"deleted {name}" for name in deleted], results.errors)


@groups.command()
@cluster
@click.argument("group", shell_complete=complete_group)
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topic)
@yes_option
@as_json
def forget(
    bootstrap: str, client: tuple[str, ...], group: str, topics: tuple[str, ...], yes: bool, as_json: bool
) -> None:
    """Delete a group's committed offsets in TOPICs that it is not reading now."""
    from ottla.cli import screen

    with admin(bootstrap, client) as ask:
        plan = plan_forgetting(ask, group, topics)
        confirm(f"delete the committed offsets of {group} in {', '.join(topics)}?", yes=yes)
        plan.commit(ask)
    screen.report(
        as_json, {"group": group, "forgot": list(topics)}, f"deleted the offsets of {group} in {', '.join(topics)}"
    )
