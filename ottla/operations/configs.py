"""Settings of topics, nodes, groups and client metrics: those set on a resource itself, and checked changes.

    own(admin.describe_config(topic), topic) -> {"retention.ms": ConfigEntry(...)}
    alter(admin, topic, {"retention.ms": 3_600_000, "segment.bytes": None})

Rules:
- A topic or node that does not exist is refused at once: the client would wait a minute for such a node.
- Unsetting an unknown setting is refused: a broker accepts it and changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from ottla.kernel.error import OttlaError
from ottla.operations.nearest import nearest
from ottla.settings.server.own import OwnSettings
from ottla.settings.server.settings import ServerSettings

if TYPE_CHECKING:
    from ottla.client import Admin, ConfigResource
    from ottla.client.admin.config import Change
    from ottla.client.admin.result import ConfigEntry

_WORDS = {
    "TOPIC": "topic",
    "BROKER": "broker",
    "BROKER_LOGGER": "logger",
    "CLIENT_METRICS": "metrics",
    "GROUP": "group",
}
_OWN_SOURCES = {
    "TOPIC": "DYNAMIC_TOPIC_CONFIG",
    "CLIENT_METRICS": "DYNAMIC_CLIENT_METRICS_CONFIG",
    "GROUP": "DYNAMIC_GROUP_CONFIG",
    "BROKER": "DYNAMIC_BROKER_CONFIG",
}


def own(entries: Mapping[str, ConfigEntry], resource: ConfigResource) -> dict[str, ConfigEntry]:
    """Return the entries that are set on the resource itself, by name: not those of a node, the cluster or a default.

    Every level of a broker's loggers counts as its own.
    """
    source = _OWN_SOURCES.get(resource.type.name)
    if source == "DYNAMIC_BROKER_CONFIG" and not resource.name:
        source = "DYNAMIC_DEFAULT_BROKER_CONFIG"
    return {name: entry for name, entry in sorted(entries.items()) if source in (None, entry.source.name)}


def own_of_topic(ask: Admin, topic: str) -> dict[str, str]:
    """Return the settings that are set on the topic itself: name -> value."""
    from ottla.client import ConfigResource, ResourceType

    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = own(ask.describe_config(resource), resource)
    return {name: entry.value for name, entry in entries.items() if entry.value is not None}


def alter(ask: Admin, resource: ConfigResource, changes: Mapping[str, Change]) -> None:
    """Change settings of one resource: a value sets, None restores the default.

    OttlaError: no such topic or node, or None for an unknown setting. KafkaError: refused by the broker.
    """
    check_there(ask, resource)
    if unset := [name for name, change in changes.items() if change is None]:
        check_known(ask, resource, unset)
    ask.alter_config(resource, changes)


def check_there(ask: Admin, resource: ConfigResource) -> None:
    """Raise OttlaError for a topic or node that does not exist. A group may have settings before it exists."""
    kind, name = resource.type.name, resource.name
    if kind == "TOPIC":
        names = [topic.name for topic in ask.list_topics(internal=True)]
        if name not in names:
            raise OttlaError(f"there is no topic {name}{nearest(name, names, 'topic')}")
    if kind in ("BROKER", "BROKER_LOGGER") and name.isdecimal():
        there = sorted(node.id for node in ask.describe_cluster().nodes)
        if int(name) not in there:
            raise OttlaError(f"there is no broker {name} now; the brokers are {', '.join(map(str, there))}")


def check_known(ask: Admin, resource: ConfigResource, names: Collection[str]) -> None:
    """Raise OttlaError for a name that is no setting of this kind of resource. Client metrics take any name."""
    if not names or resource.type.name == "CLIENT_METRICS":
        return
    # All brokers together list only what is set for all of them.
    declared = {**ServerSettings.declared(), **OwnSettings.declared()} if resource.type.name == "BROKER" else {}
    known = sorted({*ask.describe_config(resource), *declared})
    for name in names:
        # The broker lists no settings of one listener.
        if name not in known and not name.startswith("listener.name."):
            raise OttlaError(f"a {_WORDS[resource.type.name]} has no setting {name}{nearest(name, known)}")
