"""kafka-log-dirs: the content of the log directories of brokers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ottla.cli.kafka.program.error import java_class
from ottla.cli.kafka.program.option import BOOTSTRAP, COMMAND_CONFIG, Given, Option, int32, require
from ottla.cli.kafka.program.tool import Failed, admin, admin_of, command

if TYPE_CHECKING:
    from ottla.client.admin.result import LogDirDescription

OPTIONS = (
    BOOTSTRAP,
    COMMAND_CONFIG,
    Option("describe", "Describe the log directories."),
    Option("topic-list", "Only these topics, separated by commas.", "Topic list", default=""),
    Option("broker-list", "Only these brokers, separated by commas.", "Broker list", default=""),
)


def main() -> None:
    """The console script."""
    command(OPTIONS, "This tool helps to query log directory usage on the specified brokers.", _run)


def _run(given: Given) -> int:
    require(given, "bootstrap-server", "describe")
    topics = {part for part in given["topic-list"].split(",") if part}
    try:
        wanted = {int32(part) for part in given["broker-list"].split(",") if part}
    except ValueError as error:
        raise Failed(f'For input string: "{error}"') from error
    with admin(given["bootstrap-server"], {"client.id": "log-dirs-tool", **admin_of(given)}) as client:
        live = {node.id for node in client.describe_cluster().nodes}
        if missing := wanted - live:
            raise Failed(
                f"ERROR: The given brokers do not exist from --broker-list: {_listed(missing)}. Current existent "
                f"brokers: {_listed(live)}"
            )
        brokers = sorted(wanted or live)
        print("Querying brokers for log directories information")
        log_dirs = client.describe_log_dirs(brokers).check()
    print(f"Received log directory information from brokers {_listed(brokers)}")
    shown = [
        {"broker": broker, "logDirs": [_directory(directory, topics) for directory in log_dirs[broker]]}
        for broker in brokers
    ]
    print(json.dumps({"brokers": shown, "version": 1}, separators=(",", ":")))
    return 0


def _listed(numbers: Any) -> str:
    return ",".join(map(str, sorted(numbers)))


def _directory(directory: LogDirDescription, topics: set[str]) -> dict[str, Any]:
    return {
        "partitions": [
            {
                "partition": str(replica.partition),
                "size": replica.size,
                "offsetLag": replica.offset_lag,
                "isFuture": replica.future,
            }
            for replica in directory.replicas
            if not topics or replica.partition.topic in topics
        ],
        "error": None if directory.error is None else java_class(directory.error),
        "logDir": directory.path,
    }
