"""`ottla topics copy` and `ottla topics diff`: copy the records of a topic to another, and compare two topics.

Rules:
- A copy keeps keys, values, headers and timestamps byte for byte, and the partition of each record if the target has as
  many partitions as the source; otherwise the key decides. Offsets are new.
- A target with records is refused without --append, so that a copy started twice duplicates nothing.
- A copy that ends early says where to continue: --from 0:1200,1:1180.
"""

from __future__ import annotations

import click

from ottla.cli.client_kind import settings_of
from ottla.cli.option import Tool, admin, admin_of, as_json, client_settings, cluster, complete_topic, other_cluster
from ottla.cli.place import offsets_at
from ottla.kernel.error import KafkaError, OttlaError
from ottla.operations.offsets import partitions_of, stable

_to = click.option(
    "--to", "other", metavar="HOST:PORT|PROFILE", help="Cluster of the second topic (default: the same)."
)


@click.command(cls=Tool)
@cluster
@click.argument("source", shell_complete=complete_topic)
@click.argument("target")
@_to
@click.option(
    "-s",
    "--from",
    "start",
    default="earliest",
    metavar="WHERE",
    help="Where to start (see consume --help), or PARTITION:OFFSET,...",
)
@click.option("--until", metavar="WHERE", help="Stop before this offset or time (default: the end).")
@click.option("--create", is_flag=True, help="Create the target like the source if it does not exist.")
@click.option("--append", is_flag=True, help="Allow a target that has records.")
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
    from ottla.cli import screen
    from ottla.client.settings.reference import CLIENTS
    from ottla.operations.configs import own_of_topic
    from ottla.operations.topics.copy import TopicCopy, prepare_target

    if source == target and other in (None, bootstrap):
        raise click.UsageError("a topic cannot be copied to itself")
    with admin(bootstrap, client) as ask:
        partitions = partitions_of(ask, source)
        begins = offsets_at(ask, partitions, start)
        ends = offsets_at(ask, partitions, until or "latest")
        ends = stable(ask, ends) if committed else ends
        own = own_of_topic(ask, source) if create else None
    settings = client_settings(bootstrap, client)
    destination = other_cluster(other) if other else dict(settings)
    settings["isolation.level"] = "read_committed" if committed else "read_uncommitted"
    reads, writes = settings_of("consumer", settings), settings_of("producer", destination)
    CLIENTS["consumer"].read(reads, {})  # before --create: invalid settings leave no target behind
    CLIENTS["producer"].read(writes, {})
    with admin_of(destination) as there:
        count = prepare_target(there, target, len(partitions), own, append=append)
    keeps = count == len(partitions)
    under_way = TopicCopy(reads, writes, begins, ends, target, keeps=keeps)
    try:
        with screen.progress(target, under_way.total) as bar:
            under_way.run(lambda done: bar.update(bar.task_ids[0], completed=done, count=done))
    except (OttlaError, KafkaError, KeyboardInterrupt) as error:
        if not under_way.has_begun:
            raise
        places = ",".join(f"{tp.partition}:{at}" for tp, at in sorted(under_way.reached.items()))
        more = f" for certain (up to {under_way.unsure:,} more may be)" if under_way.unsure else ""
        progress = f"{screen.counted(under_way.written, 'record')} copied{more}; continue with --append --from {places}"
        if isinstance(error, KeyboardInterrupt):
            screen.note(progress)
            raise
        raise OttlaError(f"{screen.in_words(error)}; {progress}") from error
    written, how = under_way.written, "partition by partition" if keeps else "to partitions by their keys"
    screen.report(
        as_json, {"topic": target, "records": written}, f"{screen.counted(written, 'record')} copied to {target}, {how}"
    )


@click.command(cls=Tool)
@cluster
@click.argument("first", shell_complete=complete_topic)
@click.argument("second")
@_to
@as_json
def diff(bootstrap: str, client: tuple[str, ...], first: str, second: str, other: str | None, as_json: bool) -> int:
    """Compare two topics, partition by partition: records and settings. Exit code 1 when they differ."""
    from ottla.cli import screen
    from ottla.operations.topics.diff import differences, side

    left = client_settings(bootstrap, client)
    right = other_cluster(other) if other else left
    with admin(bootstrap, client) as ask:
        ours = side(ask, first, settings_of("consumer", left))
    with admin_of(right) as ask:
        theirs = side(ask, second, settings_of("consumer", right))
    same, differing = differences(ours, theirs)
    if as_json:
        screen.document({"same": not differing, "equal_records": same, "differences": differing})
    elif differing:
        for difference in differing:
            click.echo(screen.visible(difference) if screen.on_terminal() else difference)
    else:
        screen.done(f"{first} and {second} hold the same {screen.counted(same, 'record')}")
    return 1 if differing else 0
