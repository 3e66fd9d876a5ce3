"""`ottla cluster up` and its kin: a cluster of processes on this machine, for development and tests.

Rules:
- The cluster lives in a directory (-d), and every command finds it there: nothing has to run between two commands.
- `kill` is kill -9, `stop` and `down` are SIGTERM. Data stay until the directory is deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from ottla.cli.option import Tool, as_json, pairs
from ottla.kernel.error import KafkaError, OttlaError

if TYPE_CHECKING:
    from ottla.embedded.cluster.local import LocalCluster

DIRECTORY = "ottla-cluster"
_directory = click.option(
    "-d", "--directory", metavar="DIR", default=DIRECTORY, show_default=True, type=click.Path(), help="The cluster's."
)
_node = click.argument("node", type=click.IntRange(0), metavar="NODE")


@click.command(cls=Tool)
@_directory
@click.option("-n", "--nodes", type=click.IntRange(1), default=None, help="How many nodes a new cluster has (3).")
@click.option("--controllers", type=click.IntRange(1), default=None, help="How many of them vote (3, or 1 of 2).")
@click.option("--racks", metavar="A,B,...", default="", help="Racks, dealt to the nodes in turn.")
@click.option("--port", type=click.IntRange(0, 65000), default=None, help="The first port (9092); 0: any.")
@click.option("--set", "changes", metavar="KEY=VALUE", multiple=True, help="A setting of every node of a new cluster.")
@as_json
def up(
    directory: str,
    nodes: int | None,
    controllers: int | None,
    racks: str,
    port: int | None,
    changes: tuple[str, ...],
    as_json: bool,
) -> None:
    """Start a cluster of processes on this machine: a new one, or the one that DIR holds already.

    A new one that cannot start leaves nothing behind.
    """
    from pathlib import Path

    from ottla.cli import screen
    from ottla.embedded.cluster.local import LocalCluster

    if (Path(directory) / "cluster.json").exists():
        if nodes or controllers or racks or changes or port is not None:
            raise OttlaError(f"{directory} holds a cluster already: start it without options, or name another -d DIR")
        cluster = _opened(directory)
        started = cluster.start()
    else:
        cluster = LocalCluster.create(
            directory,
            nodes or 3,
            controllers=controllers,
            racks=[each for each in racks.split(",") if each],
            port=9092 if port is None else port,
            settings=pairs(changes, "--set"),
        )
        cluster.tell = screen.hint
        try:
            started = cluster.start()
        except BaseException:
            cluster.remove()
            raise
    there = cluster.plan.bootstrap_servers
    screen.told(
        as_json,
        {"cluster": cluster.plan.cluster_id, "started": started, "bootstrap_servers": there},
        f"{_nodes(started)} up; -b {there}" if started else f"all nodes are up; -b {there}",
    )


@click.command(cls=Tool)
@_directory
@as_json
def status(directory: str, as_json: bool) -> int:
    """Show the nodes of a cluster on this machine; exit code 1 when one is down or a partition has too few replicas."""
    from ottla.cli import screen

    cluster = _opened(directory)
    running = set(cluster.running())
    counts, behind = _replicas(cluster) if running else ({}, None)
    rows = [
        {
            "node": each.node_id,
            "state": "up" if each.node_id in running else "down",
            "address": each.address,
            "roles": "broker, controller" if each.is_controller else "broker",
            "rack": each.rack or None,
            "leads": counts.get(each.node_id, (0, 0))[0],
            "replicas": counts.get(each.node_id, (0, 0))[1],
        }
        for each in cluster.plan.nodes
    ]
    verdict = 1 if len(running) < len(rows) or behind else 0
    if as_json:
        screen.document({"cluster": cluster.plan.cluster_id, "nodes": rows, "behind": behind})
        return verdict
    screen.heading(f"cluster {cluster.plan.cluster_id}", str(cluster.directory))
    columns = [screen.Column("node", "name", numeric=True), screen.Column("state"), screen.Column("address")]
    columns += [screen.Column("roles"), screen.Column("rack")]
    columns += [screen.Column("leads", numeric=True), screen.Column("replicas", numeric=True)]
    colour = {"up": "green", "down": "red"}
    shown = [{**each, "state": screen.coloured(each["state"], colour[str(each["state"])])} for each in rows]
    screen.table(columns, [tuple(each.values()) for each in shown])
    if behind:
        partitions = "partition has" if behind == 1 else "partitions have"
        screen.hint(f"{behind:,} {partitions} replicas that are behind: ottla partitions -b {rows[0]['address']}")
    return verdict


@click.command(cls=Tool)
@_node
@_directory
@as_json
def kill(node: int, directory: str, as_json: bool) -> None:
    """End NODE at once, as kill -9 does."""
    _opened(directory).kill(node)
    _told(as_json, node, "killed")


@click.command(cls=Tool)
@_node
@_directory
@as_json
def stop(node: int, directory: str, as_json: bool) -> None:
    """Stop NODE in good order; its partitions go to other nodes first."""
    if not _opened(directory).stop([node]):
        raise OttlaError(f"node {node} is not running")
    _told(as_json, node, "stopped")


@click.command(cls=Tool)
@_node
@_directory
@as_json
def restart(node: int, directory: str, as_json: bool) -> None:
    """Start NODE; if it runs, it is stopped in good order before."""
    _opened(directory).restart(node)
    _told(as_json, node, "up")


@click.command("add-node", cls=Tool)
@click.option("--rack", default="", help="Its rack.")
@_directory
@as_json
def add_node(rack: str, directory: str, as_json: bool) -> None:
    """Add a broker. New topics use it; `ottla partitions move` gives it partitions that there are."""
    cluster = _opened(directory)
    node = cluster.add(rack)
    cluster.start([node.node_id])
    _told(as_json, node.node_id, "up", f" on {node.address}")


@click.command(cls=Tool)
@_node
@_directory
@as_json
def drain(node: int, directory: str, as_json: bool) -> None:
    """Move every replica of NODE to other nodes, and wait until it is done."""
    from ottla.cli import screen
    from ottla.cli.ottla.partition import follow_moves
    from ottla.client import Admin
    from ottla.operations.drain import drained
    from ottla.operations.partition_view import replicas_of_all

    cluster = _opened(directory)
    cluster.plan.node(node)
    with Admin(_bootstrap(cluster)) as ask:
        racks = {each.id: each.rack for each in ask.describe_cluster().nodes}
        plan = drained(replicas_of_all(ask), racks, node)
        left = 0
        if plan:
            ask.alter_partition_reassignments(plan).check()
            left = follow_moves(
                f"draining node {node}", len(plan), lambda: len(ask.list_partition_reassignments(list(plan)))
            )
    done = len(plan) - left
    screen.told(
        as_json,
        {"node": node, "moved": done, "left": left},
        f"{screen.counted(done, 'replica')} moved away from node {node}" + (f", {left} on the way" if left else ""),
    )


@click.command(cls=Tool)
@click.option("-n", "--nodes", type=click.IntRange(2), default=3, show_default=True, help="How many it should have.")
@_directory
@as_json
def grow(nodes: int, directory: str, as_json: bool) -> None:
    """Make more nodes of a running cluster, of one that was alone, too: they vote, and get copies of every partition.

    Nothing stops meanwhile; the nodes that were there are restarted last, one after another.
    """
    from ottla.cli import screen
    from ottla.embedded.cluster.change import grow as grown

    cluster = _opened(directory)
    new = grown(cluster, nodes, _progress(as_json))
    there = cluster.plan.bootstrap_servers
    screen.told(
        as_json,
        {"new": new, "bootstrap_servers": there},
        f"{screen.counted(len(cluster.plan.nodes), 'node')}; -b {there}",
    )


@click.command(cls=Tool)
@_directory
@as_json
def roll(directory: str, as_json: bool) -> None:
    """Restart every node, one after another, each when all replicas are in sync; clients notice nothing."""
    from ottla.cli import screen
    from ottla.embedded.cluster.change import roll as rolled

    done = rolled(_opened(directory), _progress(as_json))
    screen.told(as_json, {"restarted": done}, f"{_nodes(done)} restarted")


@click.command(cls=Tool)
@_directory
@click.option("--delete", is_flag=True, help="Delete the nodes with all data, too.")
@as_json
def down(directory: str, delete: bool, as_json: bool) -> None:
    """Stop every node of a cluster on this machine in good order."""
    from ottla.cli import screen

    cluster = _opened(directory)
    stopped = cluster.stop()
    if delete:
        cluster.remove()
    kept = "its data are deleted" if delete else f"its data stay in {directory}"
    screen.told(as_json, {"stopped": stopped, "deleted": delete}, f"{_nodes(stopped)} down; {kept}")


LOCAL = (up, status, kill, stop, restart, add_node, drain, grow, roll, down)


def _opened(directory: str) -> LocalCluster:
    from ottla.cli import screen
    from ottla.embedded.cluster.local import LocalCluster

    cluster = LocalCluster.open(directory)
    cluster.tell = screen.hint
    return cluster


def _progress(as_json: bool) -> Callable[[str], None]:
    from ottla.cli import screen

    return (lambda _: None) if as_json else screen.hint


def _bootstrap(cluster: LocalCluster) -> str:
    """The nodes that run. OttlaError when none does."""
    running = cluster.running()
    if not running:
        raise OttlaError("no node of this cluster is running; `ottla cluster up` starts them")
    return ",".join(cluster.plan.node(each).address for each in running)


def _replicas(cluster: LocalCluster) -> tuple[dict[int, tuple[int, int]], int | None]:
    """({node: (partitions that it leads, replicas)}, partitions that are behind); ({}, None) when no node answers."""
    from ottla.client import Admin
    from ottla.operations.partition_view import every_partition

    try:
        with Admin({"bootstrap.servers": _bootstrap(cluster), "default.api.timeout.ms": 5000}) as ask:
            found = every_partition(ask)
    except (OttlaError, KafkaError):
        return {}, None
    leads = Counter(each.leader for each in found)
    holds = Counter(node for each in found for node in each.replicas)
    behind = sum(each.trouble is not None for each in found)
    return {node: (leads[node], count) for node, count in holds.items()}, behind


def _nodes(ids: list[int]) -> str:
    return f"node{'s' * (len(ids) != 1)} {', '.join(map(str, ids))}" if ids else "no node"


def _told(as_json: bool, node: int, state: str, more: str = "") -> None:
    from ottla.cli import screen

    screen.told(as_json, {"node": node, "state": state}, f"node {node} {state}{more}")
