"""What DescribeConfigs shows: every setting of a resource with its value, source and synonyms.

Rules:
- The nearest source wins: the topic or group, this broker, all brokers, server.properties, the default.
- Asked about all brokers (the empty name), only what was set for all of them is shown.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.cluster.image import BROKER, CLIENT_METRICS, GROUP, TOPIC, Image
from ottla.kernel.group_settings import GroupSettings
from ottla.kernel.server_settings import ServerSettings
from ottla.kernel.setting import READ_ONLY, ConfigType, Setting, Settings, Source, Synonym
from ottla.kernel.topic_settings import TopicSettings

#: Where a value comes from, by DescribeConfigs' numbers that no declared setting has.
LOGGER_SOURCE = 6


class Described(NamedTuple):
    """One setting of one resource."""

    name: str
    value: str | None
    source: int
    type: int = ConfigType.STRING
    read_only: bool = False
    sensitive: bool = False
    documentation: str | None = None
    synonyms: tuple[Synonym, ...] = ()


def describe_topic(server: ServerSettings, image: Image, name: str) -> list[Described]:
    """A topic's settings."""
    settings = TopicSettings.resolve(image.config(TOPIC, name), server)
    return [_described(settings, each, read_only=False) for each in settings.declared().values() if not each.internal]


def describe_group(server: ServerSettings, image: Image, name: str) -> list[Described]:
    """A group's settings."""
    settings = GroupSettings.resolve(image.config(GROUP, name), server)
    return [_described(settings, each, read_only=False) for each in settings.declared().values() if not each.internal]


def describe_broker(server: ServerSettings, image: Image, name: str) -> list[Described]:
    """This broker's settings, or what was set for all brokers."""
    declared = server.declared()
    if name:
        return [
            _described(server, each, read_only=each.mode == READ_ONLY)
            for each in declared.values()
            if not each.internal or server.given(each.name)
        ]
    return [_default(declared.get(key), key, value) for key, value in sorted(image.config(BROKER, "").items())]


#: (name, default, type, meaning) of a subscription's settings.
_CLIENT_METRICS = (
    ("interval.ms", "300000", ConfigType.INT, "How often a client pushes, in milliseconds."),
    ("match", "", ConfigType.LIST, "Which clients are asked: pairs of attribute and pattern; all when it is empty."),
    ("metrics", "", ConfigType.LIST, "Prefixes of the names of the metrics that are wanted; * is all."),
)


def describe_client_metrics(image: Image, name: str) -> list[Described]:
    """The settings of one client metrics subscription (KIP-714)."""
    own = image.config(CLIENT_METRICS, name)
    found = []
    for key, default, kind, meaning in _CLIENT_METRICS:
        value = own.get(key)
        if value is None:
            found.append(Described(key, default, Source.DEFAULT, kind, documentation=meaning))
        else:
            # Its synonym is itself, with a source that only this kind of resource has.
            itself = Synonym(key, value, Source.CLIENT_METRICS)
            found.append(Described(key, value, Source.CLIENT_METRICS, kind, documentation=meaning, synonyms=(itself,)))
    return found


def _default(setting: Setting[object] | None, key: str, value: str) -> Described:
    kind = setting.type if setting is not None else ConfigType.STRING
    sensitive = setting is not None and setting.sensitive
    synonym = Synonym(key, value, Source.DYNAMIC_DEFAULT_BROKER)
    return Described(key, value, Source.DYNAMIC_DEFAULT_BROKER, kind, False, sensitive, None, (synonym,))


def _described(settings: Settings, setting: Setting[object], *, read_only: bool) -> Described:
    synonyms = tuple(settings.synonyms(setting.name))
    return Described(
        setting.name,
        settings.text(setting.name),
        synonyms[0].source if synonyms else Source.DEFAULT,
        setting.type,
        read_only,
        setting.sensitive,
        setting.documentation,
        synonyms,
    )
