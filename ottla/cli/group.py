"""`ottla groups`: list and describe groups, see their lag, reset their offsets, delete them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ottla.cli.option import admin, as_json, cluster, complete_group, complete_topic

if TYPE_CHECKING:
    from rich.text import Text

    from ottla.client import Admin, OffsetSpec, TopicPartition
    from ottla.client.admin.result import PartitionLag

_STATES = {"Stable": "green", "Empty": "dim", "Dead": "red"}


@click.group(invoke_without_command=True)
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

    with admin(bootstrap, client) as ask:
        found: list[dict[str, Any]] = []
        for listing in sorted(ask.list_groups(), key=lambda each: each.id):
            lags = ask.group_lag(listing.id)
            members = {each.member.id for each in lags if each.member is not None}
            found.append(
                {
                    "group": listing.id,
                    "type": listing.type.value,
                    "state": listing.state,
                    "members": len(members),
                    "lag": _total(lags),
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


def _total(lags: list[PartitionLag]) -> int | None:
    known = [each.lag for each in lags if each.lag is not None]
    return sum(known) if known else None


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
    """One group: its members, and for every partition how far it is."""
    from ottla.cli import screen

    with admin(bootstrap, client) as ask:
        description = ask.describe_group(group)
        lags = ask.group_lag(group)
    members = [
        {
            "member": each.id,
            "instance": each.instance_id,
            "client": each.client_id,
            "host": each.host,
            "partitions": len(each.assignment),
        }
        for each in description.members
    ]
    partitions = [
        {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "committed": each.committed,
            "end_offset": each.end_offset,
            "lag": each.lag,
            "member": None if each.member is None else each.member.id,
        }
        for each in lags
    ]
    if as_json:
        screen.document(
            {
                "group": group,
                "type": description.type.value,
                "state": description.state,
                "assignor": description.assignor,
                "coordinator": description.coordinator.id,
                "members": members,
                "partitions": partitions,
            }
        )
        return
    total = _total(lags)
    about = f"{description.type.value}, {description.state}, coordinator node {description.coordinator.id}"
    screen.heading(group, about if total is None else f"{about}, lag {total:,}")
    _print_partitions(partitions)
    if members and screen.on_terminal():
        screen.heading("\nmembers")
        columns = [screen.Column("member", "name"), screen.Column("client"), screen.Column("host")]
        columns.append(screen.Column("partitions", numeric=True))
        screen.table(columns, [(each["member"], each["client"], each["host"], each["partitions"]) for each in members])


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
@click.argument("topic", shell_complete=complete_topic)
@click.option("--to", "target", required=True, metavar="WHERE", help="earliest, latest, an offset, -N, or a time.")
@click.option("-p", "--partition", "only", type=int, multiple=True, help="Only this partition; may be given often.")
@click.option("-n", "--dry-run", is_flag=True, help="Only show what would be.")
@as_json
def reset(
    bootstrap: str,
    client: tuple[str, ...],
    group: str,
    topic: str,
    target: str,
    only: tuple[int, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Set where a group without members goes on reading.

    WHERE is earliest, latest, an offset (100), so many before the end (-100), or a time (2026-11-21T06:00).
    """
    from ottla.cli import screen
    from ottla.client import TopicPartition

    with admin(bootstrap, client) as ask:
        description = ask.describe_topic(topic)
        numbers = [each.partition for each in description.partitions if not only or each.partition in only]
        partitions = [TopicPartition(topic, number) for number in numbers]
        goals = offsets_at(ask, partitions, target)
        before = ask.list_group_offsets(group, partitions)
        if not dry_run:
            ask.alter_group_offsets(group, goals).check()
    rows = [
        {
            "topic": topic,
            "partition": each.partition,
            "before": before[each].offset if each in before else None,
            "after": goals[each],
        }
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


def offsets_at(ask: Admin, partitions: list[TopicPartition], target: str) -> dict[TopicPartition, int]:
    """Where each partition is at `target`: earliest, latest, an offset, -N before the end, or a time."""
    from ottla.client import OffsetSpec

    ends = _listed(ask, partitions, OffsetSpec.LATEST)
    starts = _listed(ask, partitions, OffsetSpec.EARLIEST)
    if target in ("latest", "end"):
        return ends
    if target in ("earliest", "beginning", "start"):
        return starts
    try:
        number = int(target)
    except ValueError:
        found = _listed(ask, partitions, timestamp_ms(target))
        # No record is as late as that: the end.
        return {each: found[each] if found[each] >= 0 else ends[each] for each in partitions}
    return {
        each: max(starts[each], min(ends[each], number if number >= 0 else ends[each] + number)) for each in partitions
    }


def _listed(ask: Admin, partitions: list[TopicPartition], spec: OffsetSpec | int) -> dict[TopicPartition, int]:
    found = ask.list_offsets(dict.fromkeys(partitions, spec)).check()
    return {each: found[each].offset for each in partitions}


def timestamp_ms(text: str) -> int:
    """A time as people write it, in milliseconds. Without a zone it is this machine's."""
    from datetime import datetime

    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.UsageError(
            f"{text}: it takes earliest, latest, an offset, -N, or a time such as 2026-11-21T06:00"
        ) from error
    return int(at.timestamp() * 1000)


@groups.command()
@cluster
@click.argument("names", nargs=-1, required=True, metavar="GROUP...", shell_complete=complete_group)
def delete(bootstrap: str, client: tuple[str, ...], names: tuple[str, ...]) -> None:
    """Delete groups without members, with all that they have committed."""
    from ottla.cli import screen
    from ottla.kernel.error import OttlaError

    with admin(bootstrap, client) as ask:
        results = ask.delete_groups(names)
    for name in names:
        if name in results.errors:
            raise OttlaError(f"{name}: {screen.in_words(results.errors[name])}")
        screen.done(f"deleted {name}")
