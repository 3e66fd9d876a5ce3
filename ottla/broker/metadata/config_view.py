"""The content of DescribeConfigs: every config of a resource with its value, source and synonyms.

Rules:
- The most specific source wins: the topic or group, this broker, all brokers, server.properties, the default.
- A request about all brokers (the empty name) shows only configs set for all of them.
- An undeclared setting is treated as sensitive, unless it is one of Ottla's own (`OwnSettings`).
- A setting prefixed with a listener's name is described like the setting without the prefix.
"""

from __future__ import annotations

from typing import Any

from ottla.kernel.named import NamedTuple
from ottla.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC, Image
from ottla.settings.client_metrics import ClientMetricsSettings
from ottla.settings.group.settings import GroupSettings
from ottla.settings.quota import ReplicationRates
from ottla.settings.schema import READ_ONLY, ConfigType, Setting, Settings, SettingSource, Synonym
from ottla.settings.server.own import OwnSettings
from ottla.settings.server.settings import ServerSettings
from ottla.settings.topic.settings import TopicSettings

#: A source in DescribeConfigs' numbering that no declared setting has.
LOGGER_SOURCE = 6
#: The type of an undeclared setting.
_UNTYPED = 0


class Described(NamedTuple):
    """A config of one resource."""

    name: str
    value: str | None
    source: int
    type: int = ConfigType.STRING
    read_only: bool = False
    sensitive: bool = False
    documentation: str | None = None
    synonyms: tuple[Synonym, ...] = ()


def describe_topic(server: ServerSettings, image: Image, name: str) -> list[Described]:
    """A topic's configs."""
    settings = TopicSettings.resolve(image.config(TOPIC, name), server)
    return [_described(settings, setting, read_only=False) for setting in _shown(settings)]


def describe_group(server: ServerSettings, image: Image, name: str) -> list[Described]:
    """A group's configs."""
    settings = GroupSettings.resolve(image.config(GROUP, name), server)
    return [_described(settings, setting, read_only=False) for setting in _shown(settings)]


def describe_broker(server: ServerSettings, image: Image, name: str) -> list[Described]:
    """This broker's configs, or those set for all brokers."""
    if name:
        declared = [_described(server, own, read_only=own.mode == READ_ONLY) for own in _shown(server)]
        return declared + [_given(server, own, server.synonyms(own)) for own in server.undeclared()]
    # Also those that do not fit this node's file, and therefore have no effect on it.
    return [
        _given(
            server,
            own,
            [synonym for synonym in server.synonyms(own) if synonym.source == SettingSource.DYNAMIC_DEFAULT_BROKER]
            or [Synonym(own, None if server.is_hidden(own) else text, SettingSource.DYNAMIC_DEFAULT_BROKER)],
        )
        for own, text in sorted(image.config(BROKER, "").items())
    ]


def describe_client_metrics(image: Image, name: str) -> list[Described]:
    """The configs of a client metrics subscription (KIP-714)."""
    own = image.config(CLIENT_METRICS, name)
    configs = []
    for key, setting in ClientMetricsSettings.declared().items():
        value, source = setting.default_text, SettingSource.DEFAULT
        synonyms: tuple[Synonym, ...] = ()
        if key in own:
            # Its only synonym is itself, with a source that no other resource type has.
            value, source = own[key], SettingSource.CLIENT_METRICS
            synonyms = (Synonym(key, value, source),)
        configs.append(
            Described(key, value, source, setting.type, documentation=setting.documentation, synonyms=synonyms)
        )
    return configs


def _given(server: ServerSettings, name: str, synonyms: list[Synonym]) -> Described:
    """A setting that was set: declared, prefixed with a listener's name, or unknown and therefore perhaps a secret."""
    setting = server.known(name)
    value, source = (synonyms[0].text, synonyms[0].source)
    if (rate := ReplicationRates.declared().get(name)) is not None:
        return Described(name, value, source, rate.type, synonyms=tuple(synonyms))
    return Described(
        name,
        value,
        source,
        _UNTYPED if setting is None else setting.type,
        read_only=_is_fixed(setting, name),
        sensitive=setting is None or setting.sensitive,
        synonyms=tuple(synonyms),
    )


def _is_fixed(setting: Setting[Any] | None, name: str) -> bool:
    """Whether the setting is read-only: in Kafka unless declared under this very name, for Ottla's own by its mode."""
    if name in OwnSettings.declared():
        return OwnSettings.declared()[name].mode == READ_ONLY
    return setting is None or setting.name != name


def _shown(settings: Settings) -> list[Setting[Any]]:
    """Every setting; internal ones only if they were set, as in Kafka."""
    return [setting for setting in settings.declared().values() if not setting.internal or settings.given(setting.name)]


def _described(settings: Settings, setting: Setting[object], *, read_only: bool) -> Described:
    synonyms = tuple(settings.synonyms(setting.name))
    return Described(
        setting.name,
        settings.text(setting.name),
        synonyms[0].source if synonyms else SettingSource.DEFAULT,
        setting.type,
        read_only,
        setting.sensitive,
        setting.documentation,
        synonyms,
    )
