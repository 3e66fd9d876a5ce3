"""kafka-leader-election: make the preferred replica the leader of partitions, or any live replica (unclean)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.cli.kafka.program.error import caused, java_class, message
from ottla.cli.kafka.program.json_file import parse, partition_of
from ottla.cli.kafka.program.option import COMMAND_CONFIG, Given, Option, forbid, partition_id
from ottla.cli.kafka.program.tool import Failed, admin, command, load, read_text
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.operations.elections import elect

if TYPE_CHECKING:
    from ottla.client import TopicPartition

_TYPES = ("preferred", "unclean")


def _election(text: str) -> str:
    if text.lower() not in _TYPES:
        raise ValueError(text)
    return text.upper()


OPTIONS = (
    Option("bootstrap-server", "REQUIRED: brokers to connect to first, HOST:PORT,HOST:PORT.", "host:port"),
    COMMAND_CONFIG,
    Option("admin.config", "Deprecated: use --command-config.", "config file"),
    Option(
        "path-to-json-file",
        'File with the partitions: {"partitions": [{"topic": "foo", "partition": 1}]}',
        "Path to JSON file",
    ),
    Option("topic", "Topic of the partition.", "topic name"),
    Option("partition", "Partition of --topic.", "partition id", partition_id),
    Option("all-topic-partitions", "All partitions that need the election."),
    Option("election-type", "REQUIRED: preferred or unclean.", "election type", _election),
)


def main() -> None:
    """The console script."""
    command(
        OPTIONS,
        "This tool attempts to elect a new leader for a set of topic partitions. The type of elections supported are "
        "preferred replicas and unclean replicas.",
        _run,
    )


def _run(given: Given) -> int:
    _check(given)
    election = given["election-type"]
    partitions = _partitions(given)
    if "admin.config" in given:
        print(
            "Option --admin.config has been deprecated and will be removed in a future version. Use --command-config "
            "instead."
        )
    config = given["admin.config"] or given["command-config"]
    properties = {"default.api.timeout.ms": "30000", "request.timeout.ms": "15000", **(load(config) if config else {})}
    with admin(given["bootstrap-server"], properties) as client:
        try:
            outcome = elect(client, partitions, unclean=election == "UNCLEAN")
        except KafkaError as error:
            raise _whole(error) from error
    if outcome.elected:
        done = ", ".join(map(str, outcome.elected))
        print(f"Successfully completed leader election ({election}) for partitions {done}")
    if outcome.unchanged:
        print(f"Valid replica already elected for partitions {', '.join(map(str, outcome.unchanged))}")
    for key, failure in outcome.failed.items():
        why = f"{java_class(failure)}: {message(failure)}"
        print(f"Error completing leader election ({election}) for partition: {key}: {why}")
    if outcome.failed:
        raise Failed(f"{len(outcome.failed)} replica(s) could not be elected")
    return 0


def _whole(error: KafkaError) -> Exception:
    if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        words = "Not authorized to perform leader election"
    elif error.code is ErrorCode.REQUEST_TIMED_OUT:
        words = "Timeout waiting for election results"
    else:
        return Failed(caused(error))
    print(words)
    return Failed(words)


def _check(given: Given) -> None:
    if missing := [name for name in ("bootstrap-server", "election-type") if name not in given]:
        raise Failed(f"Missing required option(s): {', '.join(missing)}")
    forbid(given, "admin.config", ("command-config",))
    scopes = ("topic", "all-topic-partitions", "path-to-json-file")
    if sum(scope in given for scope in scopes) != 1:
        raise Failed(f"One and only one of the following options is required: {', '.join(scopes)}")
    if "topic" in given and "partition" not in given:
        raise Failed("Missing required option(s): partition")
    if "topic" not in given and "partition" in given:
        raise Failed("Option partition is only allowed if topic is used")


def _partitions(given: Given) -> Sequence[TopicPartition] | None:
    from ottla.client import TopicPartition

    if "topic" in given:
        return [TopicPartition(given["topic"], given["partition"])]
    if "path-to-json-file" not in given:
        return None
    document = parse(read_text(given["path-to-json-file"]), "Replica election data is empty")
    if not isinstance(document, dict) or not isinstance(document.get("partitions"), list):
        raise Failed('Replica election data is missing "partitions" field')
    partitions = [partition_of(entry) for entry in document["partitions"]]
    if twice := sorted({str(tp) for tp in partitions if partitions.count(tp) > 1}):
        raise Failed(f"Replica election data contains duplicate partitions: [{', '.join(twice)}]")
    return partitions
