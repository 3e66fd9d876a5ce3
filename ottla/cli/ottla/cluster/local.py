"""`ottla cluster up` and the other commands for a cluster of local processes, for development and tests.

Rules:
- The state of the cluster is in a directory (-d), where every command finds it; no process has to run in between.
- `kill` is kill -9, `stop` and `down` are SIGTERM. The data stays until the directory is deleted.
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
    "-d",
    "--directory",
    metavar="DIR",
    default=DIRECTORY,
    show_default=True,
    type=click.Path(),
    help="Directory of the cluster.",
)
_node = click.argument("node", type=click.IntRange(0), metavar="NODE")


@click.command(cls=Tool)
@_directory
@click.option(
    "-n", "--nodes", type=click.IntRange(1), default=None, help="Number of nodes of a new cluster (default: 3)."
)
@click.option(
    "--controllers", type=click.IntRange(1), default=None, help="Number of voters among them (default: 3, or 1 of 2)."
)
@click.option("--racks", metavar="A,B,...", default="", help="Racks, assigned to the nodes round robin.")
@click.option(
    "--port", type=click.IntRange(0, 65000), default=None, help="First port (default: 9092; 0: any free ports)."
)
@click.option("--set", "changes", metavar="KEY=VALUE", multiple=True, help="Setting of every node of a new cluster.")
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
    """Start a cluster of local processes: a new one, or the existing one in DIR.

    A new cluster that cannot start leaves nothing behind.
    """
    from pathlib import Path

    from ottla.cli import screen
    from ottla.embedded.cluster.local import LocalCluster

    if (Path(directory) / "cluster.json").exists():
        if nodes or controllers or racks or changes or port is not None:
            raise OttlaError(f"{directory} already holds a cluster: start it without options, or use another -d DIR")
        cluster = _opened(directory)
        started = cluster.start()
    else:
        cluster = LocalCluster.create(
            directory,
            nodes or 3,
            controllers=controllers,
            racks=[part for part in racks.split(",") if part],
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
    screen.report(
        as_json,
        {"cluster": cluster.plan.cluster_id, "started": started, "bootstrap_servers": there},
        f"{_nodes(started)} up; -b {there}" if started else f"all nodes are up; -b {there}",
    )


@click.command(cls=Tool)
@_directory
@as_json
def status(directory: str, as_json: bool) -> int:
    """Show the nodes of a local cluster; exit code 1 when one is down or a partition has replicas out of sync."""
    from ottla.cli import screen

    cluster = _opened(directory)
    running = set(cluster.running())
    counts, behind = _replicas(cluster) if running else ({}, None)
    rows = [
        {
            "node": node.node_id,
            "state": "up" if node.node_id in running else "down",
            "address": node.address,
            "roles": "broker, controller" if node.is_controller else "broker",
            "rack": node.rack or None,
            "leads": counts.get(node.node_id, (0, 0))[0],
            "replicas": counts.get(node.node_id, (0, 0))[1],
        }
        for node in cluster.plan.nodes
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
    shown = [{**row, "state": screen.coloured(row["state"], colour[str(row["state"])])} for row in rows]
    screen.table(columns, [tuple(row.values()) for row in shown])
    if behind:
        partitions = "partition has" if behind == 1 else "partitions have"
        screen.hint(f"{behind:,} {partitions} replicas out of sync: ottla partitions -b {rows[0]['address']}")
    return verdict


@click.command(cls=Tool)
@_node
@_directory
@as_json
def kill(node: int, directory: str, as_json: bool) -> None:
    """Kill NODE at once, like kill -9."""
    _opened(directory).kill(node)
    _report(as_json, node, "killed")


@click.command(cls=Tool)
@_node
@_directory
@as_json
def stop(node: int, directory: str, as_json: bool) -> None:
    """Stop NODE cleanly, after its partitions have got other leaders."""
    if not _opened(directory).stop([node]):
        raise OttlaError(f"node {node} is not running")
    _report(as_json, node, "stopped")


@click.command(cls=Tool)
@_node
@_directory
@as_json
def restart(node: int, directory: str, as_json: bool) -> None:
    """Restart NODE; if it is running, stop it cleanly first."""
    _opened(directory).restart(node)
    _report(as_json, node, "up")


@click.command("add-node", cls=Tool)
@click.option("--rack", default="", help="Rack of the new node.")
@_directory
@as_json
def add_node(rack: str, directory: str, as_json: bool) -> None:
    """Add a broker. New topics use it; `ottla partitions move` moves existing partitions to it."""
    cluster = _opened(directory)
    node = cluster.add(rack)
    cluster.start([node.node_id])
    _report(as_json, node.node_id, "up", f" on {node.address}")


@click.command(cls=Tool)
@_node
@_directory
@as_json
def drain(node: int, directory: str, as_json: bool) -> None:
    """Move every replica of NODE to other nodes, and wait for the end."""
    from ottla.cli import screen
    from ottla.cli.ottla.partition import follow_moves
    from ottla.client import Admin
    from ottla.operations.drain import plan_drain
    from ottla.operations.partition_view import replicas_of_all

    cluster = _opened(directory)
    cluster.plan.node(node)
    with Admin(_bootstrap(cluster)) as ask:
        racks = {broker.id: broker.rack for broker in ask.describe_cluster().nodes}
        plan = plan_drain(replicas_of_all(ask), racks, node)
        left = 0
        if plan:
            ask.alter_partition_reassignments(plan).check()
            left = follow_moves(
                f"draining node {node}", len(plan), lambda: len(ask.list_partition_reassignments(list(plan)))
            )
    done = len(plan) - left
    screen.report(
        as_json,
        {"node": node, "moved": done, "left": left},
        f"{screen.counted(done, 'replica')} moved away from node {node}" + (f", {left} on the way" if left else ""),
    )


@click.command(cls=Tool)
@click.option("-n", "--nodes", type=click.IntRange(2), default=3, show_default=True, help="New number of nodes.")
@_directory
@as_json
def grow(nodes: int, directory: str, as_json: bool) -> None:
    """Add nodes to a running cluster, even a single-node one: they become voters and get replicas of every partition.

    The cluster stays available; the old nodes are restarted last, one after another.
    """
    from ottla.cli import screen
    from ottla.embedded.cluster.change import grow as grown

    cluster = _opened(directory)
    new = grown(cluster, nodes, _progress(as_json))
    there = cluster.plan.bootstrap_servers
    screen.report(
        as_json,
        {"new": new, "bootstrap_servers": there},
        f"{screen.counted(len(cluster.plan.nodes), 'node')}; -b {there}",
    )


@click.command(cls=Tool)
@_directory
@as_json
def roll(directory: str, as_json: bool) -> None:
    """Restart the nodes one after another, each when all replicas are in sync; the cluster stays available."""
    from ottla.cli import screen
    from ottla.embedded.cluster.change import roll as rolled

    done = rolled(_opened(directory), _progress(as_json))
    screen.report(as_json, {"restarted": done}, f"{_nodes(done)} restarted")


@click.command(cls=Tool)
@_directory
@click.option("--delete", is_flag=True, help="Also delete the nodes with all data.")
@as_json
def down(directory: str, delete: bool, as_json: bool) -> None:
    """Stop every node of a local cluster cleanly."""
    from ottla.cli import screen

    cluster = _opened(directory)
    stopped = cluster.stop()
    if delete:
        cluster.remove()
    state = f"{_nodes(stopped)} down" if stopped else "all nodes were down already"
    kept = "the cluster's data is deleted" if delete else f"the cluster's data stays in {directory}"
    screen.report(as_json, {"stopped": stopped, "deleted": delete}, f"{state}; {kept}")


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
    """Return the addresses of the running nodes. OttlaError when there are none."""
    running = cluster.running()
    if not running:
        raise OttlaError("no node of this cluster is running; `ottla cluster up` starts them")
    return ",".join(cluster.plan.node(node_id).address for node_id in running)


def _replicas(cluster: LocalCluster) -> tuple[dict[int, tuple[int, int]], int | None]:
    """Return ({node: (partitions it leads, replicas)}, partitions in trouble); ({}, None) when no node answers."""
    from ottla.client import Admin
    from ottla.operations.partition_view import every_partition

    try:
        with Admin({"bootstrap.servers": _bootstrap(cluster), "default.api.timeout.ms": 5000}) as ask:
            partitions = every_partition(ask)
    except (OttlaError, KafkaError):
        return {}, None
    leads = Counter(partition.leader for partition in partitions)
    holds = Counter(node for partition in partitions for node in partition.replicas)
    behind = sum(partition.trouble is not None for partition in partitions)
    return {node: (leads[node], count) for node, count in holds.items()}, behind


def _nodes(ids: list[int]) -> str:
    return f"node{'s' * (len(ids) != 1)} {', '.join(map(str, ids))}" if ids else "no node"


def _report(as_json: bool, node: int, state: str, more: str = "") -> None:
    from ottla.cli import screen

    screen.report(as_json, {"node": node, "state": state}, f"node {node} {state}{more}")
