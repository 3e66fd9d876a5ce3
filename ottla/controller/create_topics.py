"""CreateTopics (key 19) and CreatePartitions (key 37).

Rules:
- A topic fails alone; the others of the request are created. All created topics are one batch in the log.
- The records of a topic are its name, its settings and its partitions, in this order.
- `validate_only` runs every check and writes nothing.

KIPs: 4 admin, 195 more partitions, 464 defaults, 516 topic ids, 525 settings in the response.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from ottla.controller.config import check_topic, clear_elr, effective_topic_configs
from ottla.controller.decision import Decision, MutationQuota, message_or_none, unlimited
from ottla.controller.placement import active_of, check_assignment, partition_record, place
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import METADATA_TOPIC, Uuid, random_uuid
from ottla.kernel.ports import Rng
from ottla.kernel.topic_name import check_name, collision_name, may_collide
from ottla.metadata.image import TOPIC, Image
from ottla.settings.server.settings import ServerSettings
from ottla.wire.api.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ottla.wire.api.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.record.metadata import ConfigRecord, TopicRecord

#: The maximum number of partitions that one request may create (ReplicationControlManager).
PARTITIONS_MAX = 10_000
#: Own configs of a topic -> the effective ones: most topics of a request have the same, and there are 33 to resolve.
_Shown = dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]]
_TOO_MANY = "Excessively large number of partitions per request."


def create_topics(
    image: Image, settings: ServerSettings, rng: Rng, request: CreateTopicsRequest, charge: MutationQuota = unlimited
) -> Decision:
    """Create the topics of a request. `settings` are those in force, with the dynamic configs."""
    names = [topic.name for topic in request.topics]
    duplicates = dict.fromkeys(name for name, times in Counter(names).items() if times > 1)
    candidates = [topic for topic in request.topics if topic.name not in duplicates and topic.name != METADATA_TOPIC]
    if _total(candidates, settings.num_partitions) > PARTITIONS_MAX:
        return Decision([], CreateTopicsResponse(topics=[_too_many(topic.name) for topic in request.topics]))
    collisions = _collisions(image) if any(may_collide(topic.name) for topic in candidates) else {}
    records: list[Any] = []
    response = CreateTopicsResponse()
    shown: _Shown = {}
    for topic in candidates:
        try:
            topic_records, result = _create(image, settings, rng, topic, collisions, shown)
            charge(result.num_partitions)
            records += topic_records
        except KafkaError as error:
            result = _failed(topic.name, error.code, message_or_none(error))
        response.topics.append(result)
    response.topics += [_failed(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.") for name in duplicates]
    if METADATA_TOPIC in names and METADATA_TOPIC not in duplicates:
        why = f"Creation of internal topic {METADATA_TOPIC} is prohibited."
        response.topics.append(_failed(METADATA_TOPIC, ErrorCode.INVALID_REQUEST, why))
    return Decision([] if request.validate_only else records, response)


def _total(topics: list[CreatableTopic], default: int) -> int:
    counts = (default if topic.num_partitions == -1 else max(0, topic.num_partitions) for topic in topics)
    return sum(len(topic.assignments) or count for topic, count in zip(topics, counts, strict=True))


def _too_many(name: str) -> CreatableTopicResult:
    return _failed(name, ErrorCode.POLICY_VIOLATION, _TOO_MANY)


def _collisions(image: Image) -> dict[str, str]:
    return {collision_name(name): name for name in image.topics if may_collide(name)}


def _create(
    image: Image,
    settings: ServerSettings,
    rng: Rng,
    topic: CreatableTopic,
    collisions: dict[str, str],
    shown: _Shown,
) -> tuple[list[Any], CreatableTopicResult]:
    check_name(topic.name)
    # Check for an existing topic first: it would collide with itself.
    if topic.name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    if may_collide(topic.name) and collision_name(topic.name) in collisions:
        existing = collisions[collision_name(topic.name)]
        why = f"Topic '{topic.name}' collides with existing topic: {existing}"
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, why)
    configs = _configs(topic)
    check_topic(configs, settings)
    assigned = (
        _manual_assignment(image, topic) if topic.assignments else _automatic_assignment(image, settings, rng, topic)
    )
    topic_id = _new_topic_id(image, rng)
    records: list[Any] = [TopicRecord(name=topic.name, topic_id=topic_id)]
    config_records = [
        ConfigRecord(resource_type=TOPIC, resource_name=topic.name, name=key, value=value)
        for key, value in configs.items()
    ]
    records += [*config_records, *clear_elr(image, config_records)]
    records += [
        partition_record(image, topic_id, index, replicas, isr) for index, (replicas, isr) in enumerate(assigned)
    ]
    result = CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(assigned),
        replication_factor=len(assigned[0][0]),
        # Always a list: the schema allows null, but Apache's Java Admin fails on it.
        configs=_effective(configs, settings, shown),
    )
    return records, result


def _effective(configs: dict[str, str], settings: ServerSettings, shown: _Shown) -> list[CreatableTopicConfigs]:
    """Return the effective configs of a topic with these of its own, the same list for all such topics of a request."""
    key = tuple(configs.items())
    found = shown.get(key)
    if found is None:
        found = shown[key] = [
            CreatableTopicConfigs(
                name=config.name,
                value=None if config.sensitive else config.value,
                read_only=False,
                config_source=config.source,
                is_sensitive=config.sensitive,
            )
            for config in effective_topic_configs(configs, settings)
        ]
    return found


def _configs(topic: CreatableTopic) -> dict[str, str]:
    missing = [config.name for config in topic.configs if config.value is None]
    if missing:
        names = ",".join(missing)
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {names}")
    return {config.name: config.value for config in topic.configs if config.value is not None}


def _manual_assignment(image: Image, topic: CreatableTopic) -> list[tuple[list[int], list[int]]]:
    """Return (replicas, ISR) of each partition according to the manual assignment."""
    for value, field in ((topic.replication_factor, "replication factor"), (topic.num_partitions, "numPartitions")):
        if value != -1:
            why = f"A manual partition assignment was specified, but {field} was not set to -1."
            raise KafkaError(ErrorCode.INVALID_REQUEST, why)
    by_index: dict[int, tuple[list[int], list[int]]] = {}
    replication_factor = None
    for assignment in topic.assignments:
        index, replicas = assignment.partition_index, list(assignment.broker_ids)
        if index in by_index:
            why = f"Found multiple manual partition assignments for partition {index}"
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
        check_assignment(image, replicas, replication_factor)
        replication_factor = len(replicas)
        by_index[index] = replicas, _require_active(image, replicas, index)
    if sorted(by_index) != list(range(len(by_index))):
        why = "partitions should be a consecutive 0-based integer sequence"
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
    return [by_index[index] for index in range(len(by_index))]


def _require_active(image: Image, replicas: list[int], index: int) -> list[int]:
    isr = active_of(image, replicas)
    if not isr:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
            "controlled shutdown.",
        )
    return isr


def _automatic_assignment(
    image: Image, settings: ServerSettings, rng: Rng, topic: CreatableTopic
) -> list[tuple[list[int], list[int]]]:
    """Return (replicas, ISR) of each partition, placed automatically."""
    factor, count = topic.replication_factor, topic.num_partitions
    if factor < -1 or factor == 0:
        why = "Replication factor must be larger than 0, or -1 to use the default value."
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, why)
    if count < -1 or count == 0:
        why = "Number of partitions was set to an invalid non-positive value."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, why)
    factor = settings.default_replication_factor if factor == -1 else factor
    count = settings.num_partitions if count == -1 else count
    try:
        placed = place(image, rng, count, factor)
    except KafkaError as error:
        why = f"Unable to replicate the partition {factor} time(s): {error.message}"
        raise KafkaError(error.code, why) from None
    return [(replicas, active_of(image, replicas)) for replicas in placed]


def _new_topic_id(image: Image, rng: Rng) -> Uuid:
    """Return a random UUID that is unused and, being of version 4, is not one of Kafka's reserved ids."""
    while (topic_id := random_uuid(rng)) in image.topic_names:
        continue
    return topic_id


def _failed(name: str, code: ErrorCode, why: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=why, configs=[])


def create_partitions(
    image: Image, rng: Rng, request: CreatePartitionsRequest, charge: MutationQuota = unlimited
) -> Decision:
    """Add partitions to topics."""
    names = [topic.name for topic in request.topics]
    duplicates = {name for name, times in Counter(names).items() if times > 1}
    records: list[Any] = []
    response = CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(
                name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name."
            )
            for name in sorted(duplicates)
        ]
    )
    for topic in request.topics:
        if topic.name in duplicates:
            continue
        result = CreatePartitionsTopicResult(name=topic.name, error_message=None)
        try:
            added = _add_partitions(image, rng, topic)
            charge(len(added))
            records += added
        except KafkaError as error:
            result.error_code, result.error_message = error.code, message_or_none(error)
        response.results.append(result)
    if len(records) > PARTITIONS_MAX:
        for result in response.results:
            result.error_code, result.error_message = ErrorCode.POLICY_VIOLATION, _TOO_MANY
        return Decision([], response)
    return Decision([] if request.validate_only else records, response)


def _add_partitions(image: Image, rng: Rng, request: CreatePartitionsTopic) -> list[Any]:
    topic = image.topics.get(request.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    current = len(topic.partitions)
    if request.count == current:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
    if request.count < current:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {request.name} currently has {current} partition(s); {request.count} would not be an increase.",
        )
    added = request.count - current
    factor = len(topic.partitions[0].replicas)
    if request.assignments is None:
        if added > PARTITIONS_MAX:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, _TOO_MANY)
        placed = [(replicas, active_of(image, replicas)) for replicas in place(image, rng, added, factor)]
    else:
        if len(request.assignments) != added:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {added} additional partition(s), but only {len(request.assignments)} "
                "assignment(s) were specified.",
            )
        placed = []
        for index, assignment in enumerate(request.assignments):
            replicas = list(assignment.broker_ids)
            check_assignment(image, replicas, factor)
            placed.append((replicas, _require_active(image, replicas, current + index)))
    return [
        partition_record(image, topic.topic_id, current + index, replicas, isr)
        for index, (replicas, isr) in enumerate(placed)
    ]
