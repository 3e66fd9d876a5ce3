"""`ottla disks`: the log directories of the nodes, and what uses their space."""

from __future__ import annotations

from typing import Any

import click

from ottla.cli.option import admin, as_json, cluster


@click.command()
@cluster
@click.option("-t", "--topics", is_flag=True, help="Show the size of each topic, largest first.")
@as_json
def disks(bootstrap: str, client: tuple[str, ...], topics: bool, as_json: bool) -> None:
    """Show the log directories of all nodes: partitions, size of the logs, free space."""
    from ottla.cli import screen

    with admin(bootstrap, client) as ask:
        nodes = ask.describe_log_dirs().check()
    rows = [
        {
            "node": node,
            "directory": directory.path,
            "partitions": len(directory.replicas),
            "log_bytes": sum(replica.size for replica in directory.replicas),
            "free_bytes": directory.usable_bytes,
            "total_bytes": directory.total_bytes,
            "error": None if directory.error is None else directory.error.code.name,
        }
        for node, directories in sorted(nodes.items())
        for directory in directories
    ]
    sizes: dict[tuple[int, str], int] = {}
    for node, directories in nodes.items():
        for replica in (log for directory in directories for log in directory.replicas):
            key = (node, replica.partition.topic)
            sizes[key] = sizes.get(key, 0) + replica.size
    largest = sorted(sizes.items(), key=lambda entry: (-entry[1], entry[0]))
    if as_json:
        by_topic = [{"node": node, "topic": topic, "log_bytes": size} for (node, topic), size in largest]
        screen.document(by_topic if topics else rows)
    elif topics:
        columns = [
            screen.Column("node", numeric=True),
            screen.Column("topic", "name"),
            screen.Column("logs", numeric=True),
        ]
        screen.table(columns, [(node, topic, screen.size(size)) for (node, topic), size in largest])
    else:
        _print(rows)


def _print(directories: list[dict[str, Any]]) -> None:
    from ottla.cli import screen

    columns = [screen.Column("node", numeric=True), screen.Column("directory", "name")]
    columns += [screen.Column(title, numeric=True) for title in ("partitions", "logs", "free", "total")]
    rows = [
        (
            row["node"],
            row["directory"],
            screen.coloured("offline", "red") if row["error"] else row["partitions"],
            screen.size(row["log_bytes"]),
            screen.size(row["free_bytes"]),
            screen.size(row["total_bytes"]),
        )
        for row in directories
    ]
    screen.table(columns, rows)
