"""kafka-topics: create, list, describe, alter and delete topics."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.cli.kafka.program.error import message
from ottla.cli.kafka.program.match import chosen
from ottla.cli.kafka.program.option import (
    BOOTSTRAP,
    COMMAND_CONFIG,
    Given,
    Option,
    Refused,
    Usage,
    forbid,
    int32,
    pieces,
    require,
)
from ottla.cli.kafka.program.tool import Failed, admin, admin_of, command, tell
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError

if TYPE_CHECKING:
    from ottla.client import Admin
    from ottla.client.admin.result import ConfigEntry, PartitionDescription, TopicDescription

_ALTERING = " (To alter topic configurations, the kafka-configs tool can be used.)"
_REPORTS = (
    "under-replicated-partitions",
    "unavailable-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
)
_ACTIONS = ("alter", "create", "describe", "list", "delete")

OPTIONS = (
    BOOTSTRAP,
    COMMAND_CONFIG,
    Option("list", "List the topics."),
    Option("create", "Create a topic."),
    Option("delete", "Delete topics."),
    Option("alter", "Add partitions to topics." + _ALTERING),
    Option("describe", "Show topics with their partitions."),
    Option("topic", "Topic to create; for other actions, a regular expression for topics.", "topic"),
    Option("topic-id", "Id of the topic to describe.", "topic-id"),
    Option("config", "Setting of the topic to create; may be repeated." + _ALTERING, "name=value"),
    Option("delete-config", "Ignored.", "name"),
    Option("partitions", "Number of partitions (default: the cluster's).", "# of partitions", int32),
    Option("replication-factor", "Number of replicas (default: the cluster's).", "replication factor", int32),
    Option(
        "replica-assignment",
        "Brokers of each partition's replicas.",
        "broker_id_for_part1_replica1 : broker_id_for_part1_replica2 , broker_id_for_part2_replica1 : "
        "broker_id_for_part2_replica2 , ...",
    ),
    Option("under-replicated-partitions", "Describe only partitions with replicas out of sync."),
    Option("unavailable-partitions", "Describe only partitions without a leader."),
    Option(
        "under-min-isr-partitions", "Describe only partitions with fewer in-sync replicas than min.insync.replicas."
    ),
    Option("at-min-isr-partitions", "Describe only partitions with exactly min.insync.replicas in-sync replicas."),
    Option("topics-with-overrides", "Describe only topics with their own settings."),
    Option("if-exists", "Do not fail if the topic does not exist."),
    Option("if-not-exists", "Do not fail if the topic exists."),
    Option("exclude-internal", "Leave out Kafka's internal topics."),
    Option("partition-size-limit-per-response", "Maximum number of partitions per response.", "maximum number", int32),
)


def main() -> None:
    """The console script."""
    about = "create, delete, describe, or change a topic."
    command(OPTIONS, f"This tool helps to {about}", _run, alone=about.capitalize())


def _run(given: Given) -> int:
    _check(given)
    bootstrap, properties = given["bootstrap-server"], admin_of(given)
    try:
        with admin(bootstrap, properties) as client:
            _act(given, client)
    except (KafkaError, OttlaError, Failed, Refused) as error:
        print(f"Error while executing topic command : {message(error)}")
        return 1
    return 0


def _act(given: Given, client: Admin) -> None:
    if "create" in given:
        _create(given, client)
    elif "alter" in given:
        _alter(given, client)
    elif "list" in given:
        print("\n".join(_topics(given, client)))
    elif "describe" in given:
        _describe(given, client)
    else:
        client.delete_topics(_topics_or_fail(given, client)).check()


def _check(given: Given) -> None:
    if sum(action in given for action in _ACTIONS) != 1:
        raise Usage("Command must include exactly one action: --list, --describe, --create, --alter or --delete")
    if "delete-config" in given:
        tell(
            "delete-config option is no longer supported and deprecated since version 4.0. The config will be fully "
            "removed in future releases."
        )
    if "bootstrap-server" not in given:
        raise Failed("--bootstrap-server must be specified")
    if "describe" in given and "if-exists" in given and "topic" not in given and "topic-id" not in given:
        raise Usage("--topic or --topic-id is required to describe a topic")
    if "list" not in given and "describe" not in given:
        require(given, "topic")
    if "alter" in given:
        if "config" in given:
            used = "[[bootstrap-server], [config]]"
            raise Usage(f'Option combination "{used}" can\'t be used with option "[alter]"{_ALTERING}')
        require(given, "partitions")
    _check_pairs(given)


def _check_pairs(given: Given) -> None:
    def only(name: str, *actions: str, besides: Iterable[str] = ()) -> None:
        forbid(given, name, [*(action for action in _ACTIONS if action not in actions), *besides])

    only("config", "alter", "create")
    only("partitions", "alter", "create")
    only("replication-factor", "create")
    only("replica-assignment", "alter", "create")
    if "create" in given:
        forbid(given, "replica-assignment", ("partitions", "replication-factor"))
    for report in _REPORTS:
        only(report, "describe", besides=("topics-with-overrides",))
    only("topics-with-overrides", "describe", besides=_REPORTS)
    only("if-exists", "alter", "delete", "describe")
    only("if-not-exists", "create")
    only("exclude-internal", "list", "describe")


def _create(given: Given, client: Admin) -> None:
    from ottla.client import NewTopic

    name, partitions, replicas = given["topic"], given["partitions"], given["replication-factor"]
    assignments, configs = _assignments(given), _configs(given)
    if "." in name or "_" in name:
        print(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could "
            "collide. To avoid issues it is best to use either, but not both."
        )
    if replicas is not None and not 1 <= replicas <= 32767:
        raise Failed("The replication factor must be between 1 and 32767 inclusive")
    if partitions is not None and partitions < 1:
        raise Failed("The partitions must be greater than 0")
    new = NewTopic(
        name,
        -1 if partitions is None else partitions,
        -1 if replicas is None else replicas,
        configs,
        assignments or None,
    )
    try:
        client.create_topics([new]).check()
    except KafkaError as error:
        if error.code is ErrorCode.TOPIC_ALREADY_EXISTS and "if-not-exists" in given:
            return
        raise
    print(f"Created topic {name}.")


def _configs(given: Given) -> dict[str, str]:
    configs = {}
    for entry in given.values("config"):
        parts = re.split(r"\s*=\s*", entry)
        while parts and not parts[-1]:  # Java's split drops empty parts at the end
            parts.pop()
        if len(parts) != 2:
            raise Failed(
                'requirement failed: Invalid topic config: all configs to be added must be in the format "key=val".'
            )
        configs[parts[0].strip()] = parts[1].strip()
    from ottla.settings.topic.settings import TopicSettings

    if unknown := [name for name in configs if name not in TopicSettings.declared()]:
        raise Failed(f"Unknown topic config name: {unknown[0]}")
    return configs


def _assignments(given: Given) -> dict[int, list[int]]:
    text = given["replica-assignment"]
    if not text:
        return {}
    assignments: dict[int, list[int]] = {}
    for partition, part in enumerate(pieces(text)):
        try:
            brokers = [int32(broker.strip()) for broker in pieces(part, ":")]
        except ValueError as error:
            raise Failed(f'For input string: "{error}"') from error
        if twice := sorted({broker for broker in brokers if brokers.count(broker) > 1}):
            raise Failed(f"Partition replica lists may not contain duplicate entries: {','.join(map(str, twice))}")
        assignments[partition] = brokers
        if len(brokers) != len(assignments[0]):
            raise Failed(f"Partition {partition} has different replication factor: {brokers}")
    return assignments


def _alter(given: Given, client: Admin) -> None:
    assignments = _assignments(given)
    if topics := _topics_or_fail(given, client):
        counts = dict.fromkeys(topics, given["partitions"])
        if not assignments:
            client.create_partitions(counts).check()
            return
        described = client.describe_topics(topics).check()
        new = {
            name: [brokers for number, brokers in assignments.items() if number >= len(topic.partitions)]
            for name, topic in described.items()
        }
        client.create_partitions(counts, assignments=new).check()


def _topics(given: Given, client: Admin) -> list[str]:
    """Return the topics that match --topic, sorted."""
    internal = "exclude-internal" not in given
    return chosen((topic.name for topic in client.list_topics(internal=internal)), given["topic"])


def _topics_or_fail(given: Given, client: Admin) -> list[str]:
    topics = _topics(given, client)
    if not topics and given["topic"] and "if-exists" not in given:
        raise Failed(f"Topic '{given['topic']}' does not exist as expected")
    return topics


def _describe(given: Given, client: Admin) -> None:
    from ottla.client import ConfigResource, ResourceType

    names = _names_to_describe(given, client)
    if not names:
        return
    described = client.describe_topics(names).check()
    resources = {name: ConfigResource(ResourceType.TOPIC, name) for name in names}
    configs = client.describe_configs(resources.values())
    live = {node.id for node in client.describe_cluster().nodes}
    reassigning = _reassigning(client, described.values())
    for name in names:
        entries = configs[resources[name]]
        _print_topic(given, described[name], entries, reassigning.get(name, {}))
        if "topics-with-overrides" not in given:
            for partition in described[name].partitions:
                if _reported(given, partition, entries, live, reassigning.get(name, {})):
                    _print_partition(name, partition, reassigning.get(name, {}))


def _names_to_describe(given: Given, client: Admin) -> list[str]:
    from ottla.kernel.ids import NO_UUID, parse_uuid

    try:
        wanted = parse_uuid(given["topic-id"]) if "topic-id" in given else None
    except ValueError as error:
        raise Failed(f"Input string `{given['topic-id']}` is no base64-encoded UUID of 16 bytes") from error
    if wanted is None or wanted == NO_UUID:
        return _topics_or_fail(given, client)
    if "topic" in given and "if-exists" in given:
        said = "both --topic and --topic-id are specified and topicId is not Uuid.ZERO_UUID"
        print(f"Only topic id will be used when {said}")
    names = [topic.name for topic in client.list_topics(internal="exclude-internal" not in given) if topic.id == wanted]
    if not names and "if-exists" not in given:
        raise Failed(f"TopicId '{given['topic-id']}' does not exist as expected")
    return names


#: For a topic: partition to (replicas that come, replicas that go).
Moves = dict[int, tuple[tuple[int, ...], tuple[int, ...]]]


def _reassigning(client: Admin, topics: Iterable[TopicDescription]) -> dict[str, Moves]:
    """Return topic -> its moves under way; nothing if the cluster does not report them."""
    from ottla.client import TopicPartition

    partitions = [
        TopicPartition(topic.name, description.partition) for topic in topics for description in topic.partitions
    ]
    try:
        reassignments = client.list_partition_reassignments(partitions)
    except KafkaError as error:
        if error.code in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
            return {}
        raise
    moves: dict[str, Moves] = {}
    for partition, move in reassignments.items():
        moves.setdefault(partition.topic, {})[partition.partition] = (move.adding, move.removing)
    return moves


def _print_topic(given: Given, topic: TopicDescription, entries: dict[str, ConfigEntry], moves: Moves) -> None:
    from ottla.kernel.ids import uuid_text

    own = [f"{entry.name}={entry.value}" for entry in sorted(entries.values(), key=_name) if not entry.is_default]
    if any(report in given for report in _REPORTS) or ("topics-with-overrides" in given and not own):
        return
    first = topic.partitions[0]
    print(
        f"Topic: {topic.name}\tTopicId: {uuid_text(topic.id)}\tPartitionCount: {len(topic.partitions)}"
        f"\tReplicationFactor: {_replication_factor(first, moves)}\tConfigs: {','.join(own)}"
    )


def _name(entry: ConfigEntry) -> str:
    return entry.name


def _replication_factor(partition: PartitionDescription, moves: Moves) -> int:
    coming, _ = moves.get(partition.partition, ((), ()))
    return len(partition.replicas) - len(coming)


def _reported(
    given: Given, partition: PartitionDescription, entries: dict[str, ConfigEntry], live: set[int], moves: Moves
) -> bool:
    in_sync, least = len(partition.isr), int(entries["min.insync.replicas"].value or 1)
    leads = partition.leader is not None
    wanted = {
        "under-replicated-partitions": _replication_factor(partition, moves) > in_sync,
        "unavailable-partitions": partition.leader is None or partition.leader.id not in live,
        "under-min-isr-partitions": not leads or in_sync < least,
        "at-min-isr-partitions": in_sync == least,
    }
    asked = [report for report in _REPORTS if report in given]
    return not asked or any(wanted[report] for report in asked)


def _print_partition(topic: str, partition: PartitionDescription, moves: Moves) -> None:
    def ids(nodes: Iterable[object] | None) -> str:
        return "N/A" if nodes is None else ",".join(str(getattr(node, "id", node)) for node in nodes)

    leader = "none" if partition.leader is None else partition.leader.id
    line = f"\tTopic: {topic}\tPartition: {partition.partition}\tLeader: {leader}"
    line += f"\tReplicas: {ids(partition.replicas)}\tIsr: {ids(partition.isr)}"
    if partition.partition in moves:
        coming, going = moves[partition.partition]
        line += f"\tAdding Replicas: {ids(coming)}\tRemoving Replicas: {ids(going)}"
    print(line + f"\tElr: {ids(partition.elr)}\tLastKnownElr: {ids(partition.last_known_elr)}")
