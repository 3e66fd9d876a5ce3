"""`ottla topics copy` and `ottla topics diff`: the records of one topic into another, and whether two hold the same.

Rules:
- A copy keeps keys, values, headers and timestamps to the byte, and the partition of each record where the target has
  as many partitions as the source; elsewhere the key decides. Offsets are new.
- A target that has records already is refused without --append: a copy that is started twice doubles nothing.
- A copy that ends early says where to go on: --from 0:1200,1:1180.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ottla.cli.option import Tool, admin, admin_of, as_json, client_settings, cluster, complete_topic, other_cluster
from ottla.cli.place import offsets_at
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.operations.offsets import Offsets, bounds, partitions_of

if TYPE_CHECKING:
    from ottla.client import Admin

_to = click.option("--to", "other", metavar="HOST:PORT|PROFILE", help="The cluster of the second topic.")


@click.command(cls=Tool)
@cluster
@click.argument("source", shell_complete=complete_topic)
@click.argument("target")
@_to
@click.option(
    "-s", "--from", "start", default="earliest", metavar="WHERE", help="Begin there (consume --from; P:N,...)."
)
@click.option("--until", metavar="WHERE", help="Stop before this offset or time (default: at the end).")
@click.option("--create", is_flag=True, help="Create the target like the source if it does not exist.")
@click.option("--append", is_flag=True, help="The target may have records already.")
@click.option("--committed", is_flag=True, help="Leave out records of transactions that are not committed.")
@as_json
def copy(
    bootstrap: str,
    client: tuple[str, ...],
    source: str,
    target: str,
    other: str | None,
    start: str,
    until: str | None,
    create: bool,
    append: bool,
    committed: bool,
    as_json: bool,
) -> None:
    """Copy the records of SOURCE to TARGET, in this cluster or another."""
    from ottla.operations.topic_copy import own_settings

    if source == target and other in (None, bootstrap):
        raise click.UsageError("a topic is not copied into itself")
    with admin(bootstrap, client) as ask:
        partitions = partitions_of(ask, source)
        begins = offsets_at(ask, partitions, start)
        ends = offsets_at(ask, partitions, until or "latest")
        own = own_settings(ask, source) if create else {}
    destination = other_cluster(other) if other else client_settings(bootstrap, client)
    with admin_of(destination) as there:
        count = _prepared(there, target, len(partitions), own, create=create, append=append)
    keeps = count == len(partitions)
    settings = client_settings(bootstrap, client)
    settings["isolation.level"] = "read_committed" if committed else "read_uncommitted"
    _run(settings, destination, begins, ends, target, keeps=keeps, as_json=as_json)


def _run(
    source: dict[str, object],
    destination: dict[str, object],
    begins: Offsets,
    ends: Offsets,
    target: str,
    *,
    keeps: bool,
    as_json: bool,
) -> None:
    from ottla.cli import screen
    from ottla.operations.topic_copy import TopicCopy

    under_way = TopicCopy(source, destination, begins, ends, target, keeps=keeps)
    try:
        with screen.progress(target, under_way.total) as bar:
            under_way.run(lambda done: bar.update(bar.task_ids[0], completed=done, count=done))
    except (OttlaError, KafkaError, KeyboardInterrupt) as error:
        if not under_way.has_begun:
            raise
        places = ",".join(f"{each.partition}:{at}" for each, at in sorted(under_way.reached.items()))
        told = f"{under_way.written:,} records are copied; go on with --append --from {places}"
        if isinstance(error, KeyboardInterrupt):
            screen.note(told)
            raise
        raise OttlaError(f"{screen.in_words(error)}; {told}") from error
    written, how = under_way.written, "partition by partition" if keeps else "to partitions by their keys"
    screen.told(as_json, {"topic": target, "records": written}, f"{written:,} records copied to {target}, {how}")


def _prepared(ask: Admin, target: str, partitions: int, own: dict[str, str], *, create: bool, append: bool) -> int:
    """The target's partitions; made when it is not there and may be."""
    from ottla.client import NewTopic

    try:
        there = partitions_of(ask, target)
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        if not create:
            raise OttlaError(f"there is no topic {target}; --create makes it as the source is") from error
        ask.create_topics([NewTopic(target, partitions, configs=own)]).check()
        return partitions
    if not append:
        starts, ends = bounds(ask, there)
        if held := sum(ends[each] - starts[each] for each in there):
            raise OttlaError(f"{target} has {held:,} records already; --append adds to them")
    return len(there)


@click.command(cls=Tool)
@cluster
@click.argument("first", shell_complete=complete_topic)
@click.argument("second")
@_to
@as_json
def diff(bootstrap: str, client: tuple[str, ...], first: str, second: str, other: str | None, as_json: bool) -> int:
    """Compare two topics, partition by partition: records and settings. Exit code 1 when they differ."""
    from ottla.cli import screen
    from ottla.operations.topic_diff import differences, side

    left = client_settings(bootstrap, client)
    right = other_cluster(other) if other else left
    with admin(bootstrap, client) as ask:
        ours = side(ask, first, left)
    with admin_of(right) as ask:
        theirs = side(ask, second, right)
    same, found = differences(ours, theirs)
    if as_json:
        screen.document({"same": not found, "equal_records": same, "differences": found})
    elif found:
        for each in found:
            click.echo(screen.visible(each) if screen.on_terminal() else each)
    else:
        screen.done(f"{first} and {second} hold the same {same:,} records")
    return 1 if found else 0
