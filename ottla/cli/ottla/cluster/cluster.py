"""`ottla cluster`: the nodes, the quorum, the disks and the health; local clusters are in `local`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ottla.cli.option import Commands, admin, as_json
from ottla.cli.option import cluster as asks
from ottla.cli.ottla.cluster.local import LOCAL
from ottla.kernel.error import KafkaError, OttlaError

if TYPE_CHECKING:
    from ottla.client import Admin


@click.group(cls=Commands, invoke_without_command=True)
@asks
@as_json
@click.pass_context
def cluster(context: click.Context, bootstrap: str, client: tuple[str, ...], as_json: bool) -> None:
    """Show the nodes, quorum, disks and health of a cluster; run a local one. Without a command, show the nodes."""
    if context.invoked_subcommand is None:
        context.invoke(show, bootstrap=bootstrap, client=client, as_json=as_json)


@cluster.command()
@asks
@as_json
def health(bootstrap: str, client: tuple[str, ...], as_json: bool) -> int:
    """Judge the health of the cluster; exit code 0: healthy, 1: degraded, 2: failing or unreachable."""
    from ottla.cli import screen
    from ottla.cli.reach import NoBroker
    from ottla.operations.health import DEGRADED, FAILING, HEALTHY, WORDS, Reason, examine

    try:
        with admin(bootstrap, client) as ask:
            reasons, looked_at = examine(ask)
    except (OttlaError, KafkaError) as error:
        missing = isinstance(error, NoBroker)
        mend = "ottla start, or -b HOST:PORT" if missing else "check the client's settings: -X, ottla profile show"
        reasons, looked_at = [Reason(FAILING, screen.in_words(error), mend)], {}
    verdict = max((reason.level for reason in reasons), default=HEALTHY)
    if as_json:
        documents = [{"level": WORDS[reason.level], "what": reason.what, "do": reason.do} for reason in reasons]
        screen.document({"verdict": WORDS[verdict], "reasons": documents, **looked_at})
        return verdict
    colour = {HEALTHY: "green", DEGRADED: "yellow", FAILING: "red"}
    counted = ", ".join(
        f"{count:,} {'directory' if count == 1 and what == 'directories' else what[:-1] if count == 1 else what}"
        for what, count in looked_at.items()
    )
    click.echo(screen.styled(WORDS[verdict], colour[verdict], bold=True) + (f"  {counted}" if counted else ""))
    for reason in reasons:
        click.echo(f"  {screen.styled(WORDS[reason.level], colour[reason.level])}: {screen.visible(reason.what)}")
        click.echo(screen.styled(f"    {reason.do}", dim=True))
    return verdict


@cluster.command()
@asks
@as_json
def show(bootstrap: str, client: tuple[str, ...], as_json: bool) -> None:
    """Show the nodes with their disks, and the quorum."""
    from ottla.cli import screen

    with admin(bootstrap, client) as ask:
        description = ask.describe_cluster()
        quorum = _quorum(ask)
        disks = _disks(ask)
    nodes = [
        {"node": node.id, "host": node.host, "port": node.port, "rack": node.rack, **disks.get(node.id, {})}
        for node in description.nodes
    ]
    if as_json:
        screen.document(
            {
                "cluster": description.cluster_id,
                "nodes": nodes,
                "quorum": quorum,
            }
        )
        return
    about = ""
    if quorum is not None:
        voters = " ".join(map(str, quorum["voters"]))
        about = f"quorum: node {quorum['leader']} leads epoch {quorum['epoch']}, voters {voters}"
    screen.heading(f"cluster {description.cluster_id}", about)
    columns = [screen.Column("node", "name", numeric=True), screen.Column("address"), screen.Column("rack")]
    columns += [screen.Column("logs", numeric=True), screen.Column("free", numeric=True)]
    rows = [
        (
            node["node"],
            f"{node['host']}:{node['port']}",
            node["rack"],
            screen.size(node.get("log_bytes", -1)),
            screen.size(node.get("free_bytes", -1)),
        )
        for node in nodes
    ]
    screen.table(columns, rows)


def _quorum(ask: Admin) -> dict[str, Any] | None:
    """Describe the metadata quorum; None if the brokers do not support that."""
    from ottla.client import ErrorCode, KafkaError

    try:
        quorum = ask.describe_quorum()
    except KafkaError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return None
        raise
    return {
        "leader": quorum.leader_id,
        "epoch": quorum.leader_epoch,
        "high_watermark": quorum.high_watermark,
        "voters": [voter.id for voter in quorum.voters],
        "observers": [observer.id for observer in quorum.observers],
    }


def _disks(ask: Admin) -> dict[int, dict[str, Any]]:
    """Return node -> bytes of its logs and free bytes, over all its directories."""
    return {
        node: {
            "log_bytes": sum(replica.size for directory in directories for replica in directory.replicas),
            "free_bytes": sum(max(directory.usable_bytes, 0) for directory in directories),
        }
        for node, directories in ask.describe_log_dirs().succeeded.items()
    }


for command in LOCAL:
    cluster.add_command(command)
