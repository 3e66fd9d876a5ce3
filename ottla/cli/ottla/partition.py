"""`ottla partitions`: partitions in trouble, their leaders, and their moves to other nodes and directories.

Rules:
- A move continues without the tool: Ctrl-C only stops watching it, and says so.
- KIP-455 moves a partition to other nodes, KIP-113 to another directory of the same node.
- The throttle (KIP-73) of a move is removed when the tool sees the move end; otherwise `unthrottle` removes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click

from ottla.cli.option import Commands, admin, as_json, cluster, complete_topic, confirm
from ottla.kernel.error import OttlaError
from ottla.operations.elections import elect as elect_leaders
from ottla.operations.offsets import partitions_of
from ottla.operations.partition_view import every_partition
from ottla.operations.reassignment import begin_directory_move, begin_move, not_in, under_way
from ottla.operations.reassignment import cancel as cancel_moves
from ottla.operations.throttle import unthrottle, unthrottle_all

#: Between two looks at a move.
_PAUSE_S = 0.2
_partition = click.option(
    "-p", "--partition", "only", type=click.IntRange(0), multiple=True, help="Only this partition; may be repeated."
)
_no_wait = click.option("--no-wait", is_flag=True, help="Start the move and do not wait for its end.")


@click.group(cls=Commands, invoke_without_command=True)
@cluster
@as_json
@click.pass_context
def partitions(context: click.Context, bootstrap: str, client: tuple[str, ...], as_json: bool) -> int:
    """Find partitions in trouble, move them, elect leaders. Without a command, list those in trouble."""
    if context.invoked_subcommand is not None:
        return 0
    code: int = context.invoke(list_, bootstrap=bootstrap, client=client, everything=False, as_json=as_json)
    return code


@partitions.command("list")
@cluster
@click.option("-a", "--all", "everything", is_flag=True, help="Include healthy partitions.")
@as_json
def list_(bootstrap: str, client: tuple[str, ...], everything: bool, as_json: bool) -> int:
    """List partitions without a leader or with replicas out of sync; exit code 1 when there are any."""
    from ottla.cli import screen

    with admin(bootstrap, client) as ask:
        views = [{**asdict(partition), "trouble": partition.trouble} for partition in every_partition(ask)]
    troubled = [view for view in views if view["trouble"]]
    shown = views if everything else troubled
    if as_json:
        screen.document(shown)
        return 1 if troubled else 0
    columns = [screen.Column("topic", "name"), screen.Column("partition", numeric=True)]
    columns += [screen.Column("leader", numeric=True), screen.Column("replicas"), screen.Column("in sync")]
    columns.append(screen.Column("trouble", "bad"))
    rows = [(*list(view.values())[:3], _ids(view["replicas"]), _ids(view["isr"]), view["trouble"]) for view in shown]
    screen.table(columns, rows, empty=f"all partitions ({len(views):,}) have a leader and all their replicas in sync")
    return 1 if troubled else 0


def _ids(ids: Any) -> str:
    return " ".join(map(str, ids))


@partitions.command()
@cluster
@click.argument("topic", shell_complete=complete_topic)
@click.option("--to", "nodes", required=True, metavar="NODE,...", help="New replicas, preferred leader first.")
@_partition
@click.option(
    "--throttle", type=click.IntRange(1), metavar="BYTES", help="Limit in bytes a second from and to each node."
)
@_no_wait
@as_json
def move(
    bootstrap: str,
    client: tuple[str, ...],
    topic: str,
    nodes: str,
    only: tuple[int, ...],
    throttle: int | None,
    no_wait: bool,
    as_json: bool,
) -> None:
    """Move the partitions of TOPIC to other nodes; more or fewer nodes than now change the number of replicas."""
    from ottla.cli import screen

    brokers = _numbers(nodes)
    with admin(bootstrap, client) as ask:
        moved = begin_move(ask, topic, brokers, only, bytes_per_s=throttle)
        left = 0
        if not no_wait:
            left = follow_moves(f"moving {topic}", len(moved), lambda: len(ask.list_partition_reassignments(moved)))
        ended = not (no_wait or left)
        stays = throttle is not None and (not ended or bool(ask.list_partition_reassignments()))
        if throttle is not None and not stays:
            unthrottle(ask, [topic])
    many = f"{len(moved)} partition{'s' * (len(moved) != 1)}"
    screen.report(
        as_json,
        {"topic": topic, "partitions": [tp.partition for tp in moved], "to": brokers, "done": ended},
        f"{many} of {topic} {'on' if ended else 'on the way to'} {_ids(brokers)}"
        + "; run `ottla partitions unthrottle` after the last move to remove the throttle" * stays,
    )


@partitions.command("unthrottle")
@cluster
@as_json
def unthrottle_(bootstrap: str, client: tuple[str, ...], as_json: bool) -> None:
    """Remove the throttles of all moves, once nothing is moving."""
    from ottla.cli import screen

    with admin(bootstrap, client) as ask:
        topics = unthrottle_all(ask)
    many = f"{len(topics)} topic{'s' * (len(topics) != 1)}"
    screen.report(as_json, {"topics": topics}, f"removed the throttles of {many} and all nodes")


def _numbers(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise click.UsageError(f"--to {text}: expected node ids separated by commas, such as --to 1,2,3")
    numbers = [int(part) for part in parts]
    if len(set(numbers)) < len(numbers):
        raise click.UsageError(f"--to {text}: a node is listed twice")
    return numbers


def follow_moves(what: str, total: int, remaining: Callable[[], int]) -> int:
    """Wait with a progress bar until nothing remains. Returns the remaining moves when Ctrl-C stops it."""
    from ottla.cli import screen

    left = remaining()
    try:
        with screen.progress(what, total, "partitions") as bar:
            while left:
                bar.update(bar.task_ids[0], completed=total - left, count=total - left)
                time.sleep(_PAUSE_S)
                left = remaining()
    except KeyboardInterrupt:
        screen.hint("the move continues; `ottla partitions moves` shows its progress")
    return left


@partitions.command()
@cluster
@as_json
def moves(bootstrap: str, client: tuple[str, ...], as_json: bool) -> None:
    """List the moves under way, between nodes and between directories."""
    from ottla.cli import screen

    with admin(bootstrap, client) as ask:
        under_way_moves = under_way(ask)
    if as_json:
        screen.document([asdict(move) for move in under_way_moves])
        return
    columns = [screen.Column("topic", "name"), screen.Column("partition", numeric=True), screen.Column("replicas")]
    columns += [screen.Column("adding"), screen.Column("removing"), screen.Column("to directory")]
    columns.append(screen.Column("behind", numeric=True))
    rows = [
        (
            move.topic,
            move.partition,
            _ids(move.replicas),
            _ids(move.adding) or None,
            _ids(move.removing) or None,
            move.directory,
            move.lag,
        )
        for move in under_way_moves
    ]
    screen.table(columns, rows, empty="nothing is moving")


@partitions.command()
@cluster
@click.argument("topic", shell_complete=complete_topic)
@_partition
@as_json
def cancel(bootstrap: str, client: tuple[str, ...], topic: str, only: tuple[int, ...], as_json: bool) -> None:
    """Cancel the moves of TOPIC to other nodes; the partitions stay where they were."""
    from ottla.cli import screen

    with admin(bootstrap, client) as ask:
        numbers = [tp.partition for tp in cancel_moves(ask, topic, only)]
    done = f"cancelled the moves of {topic} {_ids(numbers)}" if numbers else f"no partition of {topic} was moving"
    screen.report(as_json, {"topic": topic, "cancelled": numbers}, done)


@partitions.command()
@cluster
@click.argument("topic", required=False, shell_complete=complete_topic)
@_partition
@click.option("--unclean", is_flag=True, help="Elect any live replica, even if records are lost.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation of --unclean.")
@as_json
def elect(
    bootstrap: str,
    client: tuple[str, ...],
    topic: str | None,
    only: tuple[int, ...],
    unclean: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Make the first replica of each partition its leader again, in TOPIC or in all topics."""
    from ottla.cli import screen

    if only and topic is None:
        raise click.UsageError("-p needs a TOPIC")
    if unclean:
        confirm("a replica that lacks records may become leader, and those records are lost; continue?", yes=yes)
    with admin(bootstrap, client) as ask:
        outcome = elect_leaders(ask, None if topic is None else partitions_of(ask, topic, only), unclean=unclean)
    elected = sorted(outcome.elected)
    if as_json:
        failed = {str(key): error.code.name for key, error in sorted(outcome.failed.items())}
        screen.document({"elected": [str(tp) for tp in elected], "failed": failed})
        return 1 if failed else 0
    for tp in elected:
        screen.done(f"{tp} has a new leader")
    if outcome.failed:
        key, first_error = min(outcome.failed.items())
        more = len(outcome.failed) - 1
        raise OttlaError(f"{key}: {screen.in_words(first_error)}" + f" (and {more} more)" * (more > 0))
    if not elected:
        screen.done("the preferred replicas already lead")
    return 0


@partitions.command("move-directory")
@cluster
@click.argument("topic", shell_complete=complete_topic)
@click.argument("directory", metavar="DIRECTORY", type=click.Path())
@click.option("-N", "--node", type=click.IntRange(0), help="The node (default: the only one).")
@_partition
@_no_wait
@as_json
def move_directory(
    bootstrap: str,
    client: tuple[str, ...],
    topic: str,
    directory: str,
    node: int | None,
    only: tuple[int, ...],
    no_wait: bool,
    as_json: bool,
) -> None:
    """Move the partitions of TOPIC to another log directory of their node."""
    from ottla.cli import screen

    with admin(bootstrap, client) as ask:
        if node is None:
            nodes = sorted(broker.id for broker in ask.describe_cluster().nodes)
            if len(nodes) > 1:
                raise click.UsageError(f"choose a node with -N: {_ids(nodes)}")
            node = nodes[0]
        replicas = begin_directory_move(ask, topic, directory, node, only)
        left = 0
        if not no_wait:
            left = follow_moves(f"moving {topic}", len(replicas), lambda: not_in(ask, replicas, directory))
    numbers = [replica.partition for replica in replicas]
    ended = not (no_wait or left)
    many = f"{len(replicas)} partition{'s' * (len(replicas) != 1)}"
    screen.report(
        as_json,
        {"topic": topic, "partitions": numbers, "node": node, "directory": directory, "done": ended},
        f"{many} of {topic} {'in' if ended else 'on the way to'} {directory}",
    )
