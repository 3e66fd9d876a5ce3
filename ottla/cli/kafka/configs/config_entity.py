"""The entities of kafka-configs, named by --entity-type and --entity-name or by the shorter flags."""

from __future__ import annotations

from ottla.cli.kafka.program.option import Given
from ottla.kernel.named import NamedTuple

#: Types that have settings, and those that have quotas.
RESOURCES = ("topics", "brokers", "broker-loggers", "client-metrics", "groups")
QUOTAS = ("users", "clients", "ips")
#: What a quota's entity is called in the protocol.
QUOTA_NAMES = {"users": "user", "clients": "client-id", "ips": "ip"}


class Kind(NamedTuple):
    """An entity type with its flags."""

    kind: str
    flag: str
    defaults: str = ""


ENTITIES = (
    Kind("topics", "topic"),
    Kind("clients", "client", "client-defaults"),
    Kind("users", "user", "user-defaults"),
    Kind("brokers", "broker", "broker-defaults"),
    Kind("broker-loggers", "broker-logger"),
    Kind("ips", "ip", "ip-defaults"),
    Kind("client-metrics", "client-metrics"),
    Kind("groups", "group"),
)


class Entities(NamedTuple):
    """Entity types and names, in the order given; "" is the default entity."""

    kinds: list[str]
    names: list[str]

    @property
    def kind(self) -> str:
        """The first entity type."""
        return self.kinds[0]


def read(given: Given) -> Entities:
    """Return the entities of a command line."""
    flags = [entity for entity in ENTITIES if entity.flag in given]
    defaults = [entity for entity in ENTITIES if entity.defaults and entity.defaults in given]
    kinds = [*given.values("entity-type"), *(flag.kind for flag in flags), *(default.kind for default in defaults)]
    named = [value or "" for name, value in given.occurrences if name in ("entity-name", "entity-default")]
    names = [*named, *(given[flag.flag] for flag in flags), *("" for _ in defaults)]
    return Entities(list(kinds), names)
