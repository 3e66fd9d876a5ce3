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
    found = [
        {
            "node": node,
            "directory": each.path,
            "partitions": len(each.replicas),
            "log_bytes": sum(replica.size for replica in each.replicas),
            "free_bytes": each.usable_bytes,
            "total_bytes": each.total_bytes,
            "error": None if each.error is None else each.error.code.name,
        }
        for node, directories in sorted(nodes.items())
        for each in directories
    ]
    sizes: dict[tuple[int, str], int] = {}
    for node, directories in nodes.items():
        for replica in (one for each in directories for one in each.replicas):
            key = (node, replica.partition.topic)
            sizes[key] = sizes.get(key, 0) + replica.size
    largest = sorted(sizes.items(), key=lambda each: (-each[1], each[0]))
    if as_json:
        by_topic = [{"node": node, "topic": topic, "log_bytes": size} for (node, topic), size in largest]
        screen.document(by_topic if topics else found)
    elif topics:
        columns = [
            screen.Column("node", numeric=True),
            screen.Column("topic", "name"),
            screen.Column("logs", numeric=True),
        ]
        screen.table(columns, [(node, topic, screen.size(size)) for (node, topic), size in largest])
    else:
        _print(found)


def _print(found: list[dict[str, Any]]) -> None:
    from ottla.cli import screen

    columns = [screen.Column("node", numeric=True), screen.Column("directory", "name")]
    columns += [screen.Column(title, numeric=True) for title in ("partitions", "logs", "free", "total")]
    rows = [
        (
            each["node"],
            each["directory"],
            screen.coloured("offline", "red") if each["error"] else each["partitions"],
            screen.size(each["log_bytes"]),
            screen.size(each["free_bytes"]),
            screen.size(each["total_bytes"]),
        )
        for each in found
    ]
    screen.table(columns, rows)
