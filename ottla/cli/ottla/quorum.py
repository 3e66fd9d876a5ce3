"""`ottla quorum`: the controllers of the metadata quorum, their lag, and which of them vote (KIP-595, KIP-853)."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from ottla.cli.option import Commands, admin, as_json, cluster, confirm, yes_option
from ottla.kernel.error import OttlaError

if TYPE_CHECKING:
    from ottla.kernel.ids import Uuid

_ROLES = {"leader": "green", "voter": "", "observer": "dim"}


@click.group(cls=Commands, invoke_without_command=True)
@cluster
@as_json
@click.pass_context
def quorum(context: click.Context, bootstrap: str, client: tuple[str, ...], as_json: bool) -> None:
    """Show the controllers of the quorum and their lag, add and remove voters. Without a command, show them."""
    if context.invoked_subcommand is None:
        context.invoke(show, bootstrap=bootstrap, client=client, as_json=as_json)


@quorum.command()
@cluster
@as_json
def show(bootstrap: str, client: tuple[str, ...], as_json: bool) -> None:
    """Show the leader, the voters and the observers of the metadata log, and how far each is behind."""
    from ottla.cli import screen
    from ottla.operations.quorum_view import members

    with admin(bootstrap, client) as ask:
        description = ask.describe_quorum()
    replicas = members(description)
    if as_json:
        screen.document(
            {
                "leader": description.leader_id,
                "epoch": description.leader_epoch,
                "high_watermark": description.high_watermark,
                "replicas": [asdict(replica) for replica in replicas],
            }
        )
        return
    about = f"epoch {description.leader_epoch}, high watermark {description.high_watermark:,}"
    screen.heading("metadata quorum", about)
    columns = [screen.Column("node", "name", numeric=True), screen.Column("role")]
    columns += [screen.Column(title, numeric=True) for title in ("end", "behind", "fetched")]
    columns += [screen.Column("directory id", "dim", whole=True), screen.Column("address")]
    rows = [
        (
            replica.node,
            screen.coloured(replica.role, _ROLES[replica.role]),
            replica.end_offset,
            replica.lag,
            _ago(replica.last_fetch_timestamp),
            replica.directory_id,
            " ".join(replica.endpoints) or None,
        )
        for replica in replicas
    ]
    screen.table(columns, rows, sparse=True)


def _ago(timestamp_ms: int) -> str | None:
    from ottla.cli import screen

    if timestamp_ms < 0:
        return None
    if not screen.on_terminal():
        return str(timestamp_ms)
    return f"{screen.duration(max(0, time.time_ns() // 1_000_000 - timestamp_ms))} ago"


_node = click.argument("node", type=click.IntRange(0))
_directory = click.argument("directory_id", metavar="DIRECTORY-ID")


def _uuid(text: str) -> Uuid:
    from ottla.kernel.ids import parse_uuid

    try:
        return parse_uuid(text)
    except ValueError as error:
        raise OttlaError(f"invalid directory id: {text} (`ottla quorum` and meta.properties show it)") from error


@quorum.command()
@cluster
@_node
@_directory
@click.argument("addresses", nargs=-1, required=True, metavar="LISTENER://HOST:PORT...")
@as_json
def add(
    bootstrap: str, client: tuple[str, ...], node: int, directory_id: str, addresses: tuple[str, ...], as_json: bool
) -> None:
    """Make an observer a voter: the node id, the id of its metadata directory, and its controller listeners.

    \b
    ottla quorum add 4 tqOxGIbdSvGJmEkpqtyV0Q CONTROLLER://node4:9093
    """  # noqa: D301 - click wants the backspace itself
    from ottla.cli import screen

    endpoints = dict(map(_endpoint, addresses))
    with admin(bootstrap, client) as ask:
        ask.add_raft_voter(node, _uuid(directory_id), endpoints)
    screen.report(as_json, {"added": node, "directory_id": directory_id}, f"node {node} is a voter")


def _endpoint(text: str) -> tuple[str, tuple[str, int]]:
    name, separator, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    if not separator or not colon or not host or not port.isdecimal():
        raise click.UsageError(f"{text}: expected LISTENER://HOST:PORT, e.g. CONTROLLER://node4:9093")
    return name, (host.strip("[]"), int(port))


@quorum.command()
@cluster
@_node
@_directory
@yes_option
@as_json
def remove(bootstrap: str, client: tuple[str, ...], node: int, directory_id: str, yes: bool, as_json: bool) -> None:
    """Remove a controller from the voters, before it is shut down for good."""
    from ottla.cli import screen

    directory = _uuid(directory_id)
    confirm(f"remove node {node} from the voters?", yes=yes)
    with admin(bootstrap, client) as ask:
        ask.remove_raft_voter(node, directory)
    screen.report(as_json, {"removed": node, "directory_id": directory_id}, f"node {node} is no longer a voter")
