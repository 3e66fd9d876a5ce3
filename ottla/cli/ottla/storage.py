"""`ottla storage`: format the log directories of a node, like kafka-storage, and show them."""

from __future__ import annotations

import click

from ottla.cli.node import read_file
from ottla.cli.option import Commands, as_json, pairs
from ottla.host.config_providers import server_settings

_config = click.option(
    "-c", "--config", "file", metavar="FILE", required=True, type=click.Path(), help="The node's server.properties."
)


@click.group(cls=Commands)
def storage() -> None:
    """Format and show the log directories of a node."""


@storage.command("format")
@click.option("-t", "--cluster-id", required=True, metavar="ID", help="Cluster id, the same for all nodes.")
@_config
@click.option("-s", "--standalone", is_flag=True, help="Start a quorum of this controller alone.")
@click.option(
    "-I",
    "--initial-controllers",
    metavar="ID@HOST:PORT:DIRECTORY,...",
    help="Start a quorum of these controllers.",
)
@click.option("-N", "--no-initial-controllers", is_flag=True, help="Start no quorum: this controller joins one later.")
@click.option(
    "-S",
    "--add-scram",
    "scram",
    multiple=True,
    metavar="MECHANISM=[...]",
    help="Initial SCRAM credential, e.g. SCRAM-SHA-256=[name=ann,password=secret]; may be repeated.",
)
@click.option("-g", "--ignore-formatted", is_flag=True, help="Skip directories that are already formatted.")
@click.option(
    "-r", "--release-version", metavar="VERSION", help="Initial release of the metadata version and features, e.g. 4.3."
)
@click.option("-f", "--feature", "features", metavar="NAME=LEVEL", multiple=True, help="Initial level of a feature.")
@as_json
def format_(
    cluster_id: str,
    file: str,
    standalone: bool,
    initial_controllers: str | None,
    no_initial_controllers: bool,
    scram: tuple[str, ...],
    ignore_formatted: bool,
    release_version: str | None,
    features: tuple[str, ...],
    as_json: bool,
) -> None:
    """Format the log directories: write the ids of cluster, node and directory, and the initial metadata.

    `ottla storage random-uuid` prints an id for a new cluster.
    """
    from random import SystemRandom

    from ottla.broker.metadata.format import format_directories
    from ottla.host.clock import HostClock
    from ottla.host.disk import HostDisk

    lines = format_directories(
        HostDisk(),
        server_settings(read_file(file)),
        cluster_id,
        clock=HostClock(),
        rng=SystemRandom(),
        standalone=standalone,
        initial_controllers=initial_controllers,
        no_initial_controllers=no_initial_controllers,
        scram=scram,
        ignore_formatted=ignore_formatted,
        release_version=release_version,
        features=_levels(features),
    )
    if as_json:
        from ottla.cli import screen

        screen.document({"cluster": cluster_id, "done": lines})
        return
    for line in lines:
        click.echo(line)


def _levels(features: tuple[str, ...]) -> dict[str, int]:
    wanted = {}
    for name, level in pairs(features, "--feature").items():
        if not level.isdecimal() or int(level) >= 1 << 15:
            raise click.UsageError(f"--feature {name}={level}: the level must be a whole number below 32768")
        wanted[name] = int(level)
    return wanted


@storage.command()
@_config
@as_json
def info(file: str, as_json: bool) -> int:
    """Show the state of the log directories; exit code 1 when one of them is not formatted."""
    from ottla.cli import screen
    from ottla.host.disk import HostDisk
    from ottla.log.checkpoint import META_PROPERTIES, read_properties

    disk = HostDisk()
    rows = []
    for path in server_settings(read_file(file)).directories:
        properties = read_properties(disk, f"{path}/{META_PROPERTIES}") if disk.is_directory(path) else None
        state = "formatted" if properties else "empty" if disk.is_directory(path) else "not there"
        rows.append({"directory": path, "state": state, **(properties or {})})
    if as_json:
        screen.document(rows)
    else:
        columns = [
            screen.Column("directory", "name"),
            screen.Column("state"),
            screen.Column("cluster"),
            screen.Column("node"),
        ]
        screen.table(
            columns,
            [
                (
                    row["directory"],
                    screen.coloured(row["state"], "green" if row["state"] == "formatted" else "yellow"),
                    row.get("cluster.id"),
                    row.get("node.id"),
                )
                for row in rows
            ],
        )
    return 0 if all(row["state"] == "formatted" for row in rows) else 1


@storage.command("random-uuid")
@as_json
def random_uuid(as_json: bool) -> None:
    """Print a random id for a new cluster."""
    from random import SystemRandom

    from ottla.kernel import ids

    made = ids.uuid_text(ids.random_uuid(SystemRandom()))
    if as_json:
        from ottla.cli import screen

        screen.document({"uuid": made})
    else:
        click.echo(made)
