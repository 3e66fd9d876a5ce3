"""The metadata of a cluster as the tree that kafka-metadata-shell browses: directories, and leaves with a line each.

The names are those of Apache's tree, and a leaf has the `toString` of Apache's object. Directories create their
children on demand: browsing a tree of 10,000 topics costs only the visited part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from ottla.kernel.ids import NO_UUID, uuid_text
from ottla.kernel.java import java_double
from ottla.metadata.feature import METADATA_VERSIONS
from ottla.metadata.image import METADATA_VERSION, BrokerImage, Image, PartitionImage, QuotaEntity, TopicImage
from ottla.settings.listener import PROTOCOLS
from ottla.wire.record.metadata import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RegisterControllerRecord,
    UserScramCredentialRecord,
)

#: ConfigResource.Type by its number.
_KINDS = {2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"}
_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_RECOVERY_STATES = ("RECOVERED", "RECOVERING")
_QUOTA_PARTS = {"client-id": "clientId", "ip": "ip", "user": "user"}
_SHORT_MAX = 32_767

#: What a directory is made of: names in any order. None is a child that Apache's tree names and cannot open.
Children = Iterable[tuple[str, "Node | None"]]


class Leaf:
    """A node with one line of text."""

    __slots__ = ("text",)

    def __init__(self, text: object) -> None:
        self.text = str(text)


class TreeDirectory:
    """A node with children, sorted by name; two may have the same name."""

    __slots__ = ("_children",)

    def __init__(self, children: Callable[[], Children]) -> None:
        self._children = children

    def children(self) -> list[tuple[str, Node | None]]:
        """Return all children."""
        return sorted(self._children(), key=lambda entry: entry[0])

    def child(self, name: str) -> Node | None:
        """Return the child with this name, or None if there is none that can be opened."""
        return next((node for child_name, node in self._children() if child_name == name and node is not None), None)


Node = Leaf | TreeDirectory


def root(image: Image, version: str, commit: str) -> TreeDirectory:
    """Return the root directory."""
    local = TreeDirectory(lambda: [("version", Leaf(version)), ("commitId", Leaf(commit))])
    return TreeDirectory(lambda: [("local", local), ("image", TreeDirectory(lambda: _image(image)))])


def _image(image: Image) -> Iterator[tuple[str, Node]]:
    yield "provenance", Leaf(f"offset {image.offset}, epoch {image.epoch}, time {_time(image.timestamp)}")
    yield "features", TreeDirectory(lambda: _features(image))
    cluster = {"brokers": _leaves(image.brokers, _broker), "controllers": _leaves(image.controllers, _controller)}
    yield "cluster", TreeDirectory(cluster.items)
    topics = {
        "byName": TreeDirectory(lambda: [(name, _topic(topic)) for name, topic in image.topics.items()]),
        "byId": TreeDirectory(lambda: [(uuid_text(topic.topic_id), _topic(topic)) for topic in image.topics.values()]),
    }
    yield "topics", TreeDirectory(topics.items)
    yield "configs", TreeDirectory(lambda: _configs(image))
    yield "clientQuotas", TreeDirectory(lambda: _quotas(image.quotas))
    yield "producerIds", TreeDirectory(lambda: [("nextProducerId", Leaf(image.next_producer_id))])
    acls = TreeDirectory(lambda: [(uuid_text(key), Leaf(_acl(acl))) for key, acl in image.acls.items()])
    yield "acls", TreeDirectory(lambda: [("byId", acls)])
    yield "scram", TreeDirectory(lambda: [(name, _scram(image, number)) for number, name in _MECHANISMS.items()])
    yield "delegationToken", _leaves(image.tokens, _token)


def _leaves(things: Mapping[Any, Any], text: Callable[[Any], str]) -> TreeDirectory:
    return TreeDirectory(lambda: [(str(key), Leaf(text(thing))) for key, thing in things.items()])


def _time(timestamp_ms: int) -> str:
    """Format a time like ISO_ZONED_DATE_TIME, without trailing zeros in the fraction of a second."""
    at = datetime.fromtimestamp(timestamp_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f".{timestamp_ms % 1000:03d}".rstrip("0").rstrip(".")
    return f"{at}{fraction}Z[UTC]"


def _features(image: Image) -> Iterator[tuple[str, Node]]:
    release = METADATA_VERSIONS.get(image.metadata_version)
    yield "metadataVersion", Leaf(f"Optional[{release.text}]" if release else "Optional.empty")
    for name, level in image.features.items():
        if name != METADATA_VERSION:
            yield f"finalized_{name}", Leaf(level)


def _topic(topic: TopicImage) -> TreeDirectory:
    return TreeDirectory(
        lambda: [
            ("name", Leaf(topic.name)),
            ("id", Leaf(uuid_text(topic.topic_id))),
            *((str(index), Leaf(_partition(partition))) for index, partition in enumerate(topic.partitions)),
        ]
    )


def _list(items: Iterable[object]) -> str:
    return f"[{', '.join(map(str, items))}]"


def _java(value: bool) -> str:
    return "true" if value else "false"


def _partition(partition: PartitionImage) -> str:
    directories = partition.directories or [NO_UUID] * len(partition.replicas)
    return (
        f"PartitionRegistration(replicas={_list(partition.replicas)}, "
        f"directories={_list(map(uuid_text, directories))}, isr={_list(partition.isr)}, "
        f"removingReplicas={_list(partition.removing_replicas)}, addingReplicas={_list(partition.adding_replicas)}, "
        f"elr={_list(partition.eligible_leader_replicas)}, lastKnownElr={_list(partition.last_known_elr)}, "
        f"leader={partition.leader}, leaderRecoveryState={_RECOVERY_STATES[partition.leader_recovery_state]}, "
        f"leaderEpoch={partition.leader_epoch}, partitionEpoch={partition.partition_epoch})"
    )


def _endpoints(endpoints: Iterable[Any]) -> str:
    return _list(
        f"Endpoint(listenerName='{endpoint.name}', securityProtocol={PROTOCOLS[endpoint.security_protocol]}, "
        f"host='{endpoint.host}', port={endpoint.port})"
        for endpoint in sorted(endpoints, key=lambda entry: str(entry.name))
    )


def _ranges(features: Iterable[tuple[str, int, int]]) -> str:
    return "{" + ", ".join(f"{name}: {_range(low, high)}" for name, low, high in sorted(features)) + "}"


def _range(low: int, high: int) -> str:
    if low == high:
        return str(low)
    return f"{low}+" if high == _SHORT_MAX else f"{low}-{high}"


def _broker(broker: BrokerImage) -> str:
    cordoned = broker.cordoned_log_dirs
    return (
        f"BrokerRegistration(id={broker.broker_id}, epoch={broker.epoch}, "
        f"incarnationId={uuid_text(broker.incarnation_id)}, listeners={_endpoints(broker.endpoints)}, "
        f"supportedFeatures={_ranges(broker.features)}, "
        f"rack={'Optional.empty' if broker.rack is None else f'Optional[{broker.rack}]'}, "
        f"fenced={_java(broker.fenced)}, inControlledShutdown={_java(broker.in_controlled_shutdown)}, "
        f"isMigratingZkBroker={_java(broker.is_migrating_zk_broker)}, "
        f"directories={_list(map(uuid_text, broker.log_dirs))}, "
        f"cordonedDirectories={'null' if cordoned is None else _list(map(uuid_text, cordoned))})"
    )


def _controller(controller: RegisterControllerRecord) -> str:
    features = [
        (feature.name, feature.min_supported_version, feature.max_supported_version) for feature in controller.features
    ]
    return (
        f"ControllerRegistration(id={controller.controller_id}, incarnationId={uuid_text(controller.incarnation_id)}, "
        f"zkMigrationReady={_java(controller.zk_migration_ready)}, listeners={_endpoints(controller.end_points)}, "
        f"supportedFeatures={_ranges(features)})"
    )


def _configs(image: Image) -> Iterator[tuple[str, Node]]:
    for (kind, name), values in image.configs.items():
        word = _KINDS.get(kind, "UNKNOWN")
        yield f"{word}:{name}" if name else word, _leaves(values, str)


def _quotas(quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> Iterator[tuple[str, Node | None]]:
    for entity, values in quotas.items():
        parts = [(kind, name) for kind, name in sorted(entity) if name is not None]
        label = "_".join(f"{_QUOTA_PARTS[kind]}({_escaped(name)})" for kind, name in parts)
        # The label leaves out the name of a default entity, so it opens nothing.
        yield label, _leaves(values, java_double) if len(parts) == len(entity) else None


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")


def _acl(acl: AccessControlEntryRecord) -> str:
    from ottla.client.admin.acl import AclOperation, AclPermission, AclResource, PatternType

    return (
        f"StandardAcl[resourceType={AclResource(acl.resource_type).name}, resourceName={acl.resource_name}, "
        f"patternType={PatternType(acl.pattern_type).name}, principal={acl.principal}, host={acl.host}, "
        f"operation={AclOperation(acl.operation).name}, permissionType={AclPermission(acl.permission_type).name}]"
    )


def _scram(image: Image, mechanism: int) -> TreeDirectory:
    users = {user: credential for (user, number), credential in image.scram.items() if number == mechanism}
    return _leaves(users, _credential)


def _credential(credential: UserScramCredentialRecord) -> str:
    return (
        f"ScramCredentialData(salt={credential.salt.hex()}, storedKey={credential.stored_key.hex()}, "
        f"serverKey={credential.server_key.hex()}, iterations={credential.iterations})"
    )


def _token(token: DelegationTokenRecord) -> str:
    # Apache's line has the same unbalanced brackets.
    return (
        f"DelegationTokenDatatokenId={token.token_id}(owner={token.owner}(tokenRequester={token.requester}"
        f"(renewers={' '.join(token.renewers)}, issueTimestamp={token.issue_timestamp}, "
        f"maxTimestamp={token.max_timestamp}), expiryTimestamp={token.expiration_timestamp}"
    )
