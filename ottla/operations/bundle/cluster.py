"""The parts of a bundle that come from a cluster: over the protocol, and over HTTP from nodes that expose metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any

from ottla.kernel.error import KafkaError, OttlaError
from ottla.kernel.ids import uuid_text
from ottla.operations.bundle.archive import Absent, Bundle
from ottla.operations.bundle.mask import HIDDEN
from ottla.operations.configs import own
from ottla.operations.group_view import look
from ottla.operations.health import WORDS, examine
from ottla.settings.server.own import OwnSettings

if TYPE_CHECKING:
    from ottla.client import Admin
    from ottla.client.admin.result import ClusterDescription, ConfigEntry, PartitionDescription
    from ottla.client.connection.metadata import ClusterNode

_HTTP_SECONDS = 5.0
_HTTP_BYTES_MAX = 8 << 20
_UUID_BYTES = 16
#: Topics that are asked about at once.
_BATCH = 500


def add_cluster(bundle: Bundle, ask: Admin) -> None:
    """Add all parts of a cluster."""
    described: list[ClusterDescription] = []

    def describe() -> Any:
        described.append(ask.describe_cluster(include_fenced=True))
        return plain(described[0])

    bundle.document("cluster.json", "cluster id, nodes, fenced nodes", describe)
    bundle.document("quorum.json", "the controllers and their end offsets", lambda: plain(ask.describe_quorum()))
    bundle.document("health.json", "the verdict of `ottla cluster health`", lambda: _health(ask))
    if not described:
        bundle.fail("settings, features and metrics of the nodes", "the nodes are unknown: see cluster.json")
    for cluster in described:
        for node in cluster.nodes:
            if node.id not in cluster.fenced:
                _add_node(bundle, ask, node)
    bundle.document("settings/all-nodes.json", "dynamic settings for all nodes", lambda: _settings(ask, ""))
    bundle.rows("settings/topics.jsonl", "settings set on the topics themselves", lambda: _topic_settings(ask))
    bundle.rows("partitions.jsonl", "leader, replicas, in-sync replicas, offsets", lambda: _partitions(ask))
    bundle.rows("log-dirs.jsonl", "log directories, disk space, sizes of replicas", lambda: _log_dirs(ask))
    bundle.rows("reassignments.jsonl", "moves under way", lambda: _reassignments(ask))
    bundle.rows("groups.jsonl", "groups with members, committed offsets and lag", lambda: _groups(ask))
    bundle.rows("transactions.jsonl", "transactional ids and their states", lambda: map(plain, ask.list_transactions()))


def _add_node(bundle: Bundle, ask: Admin, node: ClusterNode) -> None:
    name = f"node-{node.id}"
    entries = bundle.document(
        f"settings/{name}.json",
        "settings in force, with their sources",
        lambda: _settings(ask, str(node.id)),
    )
    bundle.document(f"settings/{name}-loggers.json", "levels of the loggers", lambda: _loggers(ask, str(node.id)))
    bundle.document(f"features/{name}.json", "features and their levels", lambda: plain(ask.describe_features(node.id)))
    setting = OwnSettings.metrics_listener.name
    if entries is None:
        return bundle.fail(f"metrics/{name}.txt", f"the node's {setting} is unknown: see settings/{name}.json")
    where = next((entry["value"] for entry in entries if entry["name"] == setting), None)
    if where is None:
        return bundle.fail(f"metrics/{name}.txt", Absent(f"the node does not report a {setting}"))
    for file, path in ((f"metrics/{name}.txt", "/metrics"), (f"metrics/{name}-health.json", "/health")):
        bundle.text(file, f"{path} of the node", lambda path=path: _http_get(where, node.host, path))  # type: ignore[misc]


def plain(value: Any) -> Any:
    """Convert a result of the admin client to values that JSON can hold."""
    if isinstance(value, KafkaError):
        return {"error": value.code.name, "message": value.message}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return uuid_text(value) if len(value) == _UUID_BYTES else HIDDEN
    names = getattr(type(value), "__dataclass_fields__", None)
    return {name: plain(getattr(value, name)) for name in names} if names else value


def _health(ask: Admin) -> dict[str, Any]:
    reasons, looked_at = examine(ask)
    problems = [{"level": WORDS[reason.level], "what": reason.what, "do": reason.do} for reason in reasons]
    return {"verdict": WORDS[max((reason.level for reason in reasons), default=0)], "reasons": problems, **looked_at}


def _settings(ask: Admin, node: str) -> list[dict[str, Any]]:
    from ottla.client import ConfigResource, ResourceType

    entries = ask.describe_config(ConfigResource(ResourceType.BROKER, node), synonyms=True)
    return [_setting(entry) for _, entry in sorted(entries.items())]


def _setting(entry: ConfigEntry) -> dict[str, Any]:
    # A broker sends no value for a sensitive setting; if one does, hide it.
    hidden = HIDDEN if entry.sensitive else None
    return {
        "name": entry.name,
        "value": hidden or entry.value,
        "source": entry.source.name,
        "read_only": entry.read_only,
        "from": [
            {"name": synonym.name, "value": hidden or synonym.value, "source": synonym.source.name}
            for synonym in entry.synonyms
        ],
    }


def _loggers(ask: Admin, node: str) -> dict[str, str | None]:
    from ottla.client import ConfigResource, ResourceType

    entries = ask.describe_config(ConfigResource(ResourceType.BROKER_LOGGER, node))
    return {name: entry.value for name, entry in sorted(entries.items())}


def _topics(ask: Admin) -> list[str]:
    return sorted(topic.name for topic in ask.list_topics(internal=True))


def _topic_settings(ask: Admin) -> Iterator[dict[str, Any]]:
    from ottla.client import ConfigResource, ResourceType

    names = _topics(ask)
    for at in range(0, len(names), _BATCH):
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in names[at : at + _BATCH]]
        for resource, entries in ask.describe_configs(resources).succeeded.items():
            if mine := own(entries, resource):
                yield {"topic": resource.name, "settings": {name: entry.value for name, entry in mine.items()}}


def _partitions(ask: Admin) -> Iterator[dict[str, Any]]:
    names = _topics(ask)
    for at in range(0, len(names), _BATCH):
        described = ask.describe_topics(names[at : at + _BATCH])
        for name, topic in sorted(described.succeeded.items()):
            led = [partition.partition for partition in topic.partitions if partition.leader is not None]
            ends = _offsets(ask, name, led)
            for partition in topic.partitions:
                yield {
                    "topic": name,
                    "id": uuid_text(topic.id),
                    **_partition(partition),
                    **ends.get(partition.partition, {}),
                }
        for name, error in sorted(described.errors.items()):
            yield {"topic": name, **plain(error)}


def _partition(description: PartitionDescription) -> dict[str, Any]:
    def ids(nodes: tuple[ClusterNode, ...] | None) -> list[int] | None:
        return None if nodes is None else [node.id for node in nodes]

    return {
        "partition": description.partition,
        "leader": None if description.leader is None else description.leader.id,
        "leader_epoch": description.leader_epoch,
        "replicas": ids(description.replicas),
        "isr": ids(description.isr),
        "offline": ids(description.offline),
        "elr": ids(description.elr),
        "last_known_elr": ids(description.last_known_elr),
    }


def _offsets(ask: Admin, topic: str, partitions: list[int]) -> dict[int, dict[str, Any]]:
    from ottla.client import OffsetSpec, TopicPartition

    offsets: dict[int, dict[str, Any]] = {}
    asked = [TopicPartition(topic, partition) for partition in partitions]
    for name, spec in (("start_offset", OffsetSpec.EARLIEST), ("end_offset", OffsetSpec.LATEST)):
        results = ask.list_offsets(dict.fromkeys(asked, spec)) if asked else None
        for where, result in (results.succeeded if results else {}).items():
            offsets.setdefault(where.partition, {})[name] = result.offset
        for where, error in (results.errors if results else {}).items():
            offsets.setdefault(where.partition, {})[name] = error.code.name
    return offsets


def _log_dirs(ask: Admin) -> Iterator[dict[str, Any]]:
    log_dirs = ask.describe_log_dirs()
    for node, directories in sorted(log_dirs.succeeded.items()):
        for directory in directories:
            about = {"node": node, "path": directory.path}
            error = None if directory.error is None else directory.error.code.name
            yield {
                **about,
                "error": error,
                "total_bytes": directory.total_bytes,
                "usable_bytes": directory.usable_bytes,
            }
            for replica in directory.replicas:
                at = {"topic": replica.partition.topic, "partition": replica.partition.partition}
                size = {"bytes": replica.size, "offset_lag": replica.offset_lag, "future": replica.future}
                yield {**about, **at, **size}
    for node, failure in sorted(log_dirs.errors.items()):
        yield {"node": node, **plain(failure)}


def _reassignments(ask: Admin) -> Iterator[dict[str, Any]]:
    for where, move in sorted(ask.list_partition_reassignments().items()):
        yield {"topic": where.topic, "partition": where.partition, **plain(move)}


def _groups(ask: Admin) -> Iterator[dict[str, Any]]:
    for group in ask.list_groups():
        about = {"group": group.id, "type": group.type.value}
        try:
            view = look(ask, group.id, group.type)
        except (KafkaError, OttlaError) as error:
            yield {**about, "error": str(error)}
        else:
            yield {**about, "lag": view.lag, **asdict(view)}


def _http_get(where: str, node_host: str, path: str) -> str:
    """Read `path` over HTTP from a node that listens at `where`; for a wildcard address, use the host of the node."""
    host, _, port = where.rpartition(":")
    host = host.strip("[]")
    if port == "0":
        raise Absent(f"the node's port is random ({where}); its log has the actual port")
    connection = HTTPConnection(node_host if host in ("", "0.0.0.0", "::") else host, int(port), timeout=_HTTP_SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().read(_HTTP_BYTES_MAX).decode(errors="replace")
    finally:
        connection.close()
