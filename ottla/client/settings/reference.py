"""Documentation of the client's settings: `explain` for one, `reference` for all as Markdown.

Everything comes from the declarations; a test compares docs/reference/client-settings.md with it.
"""

from __future__ import annotations

import difflib

from ottla.client.settings.consumer import ConsumerSettings
from ottla.client.settings.producer import ProducerSettings
from ottla.client.settings.share import NOT_OF_SHARE_CONSUMERS, ShareConsumerSettings
from ottla.kernel.error import OttlaError
from ottla.kernel.frozen import frozen
from ottla.settings.client.client import AdminSettings
from ottla.settings.client.schema import ClientSetting, DeclaredSettings
from ottla.settings.reference import table
from ottla.settings.since import since
from ottla.wire.codec import Codec

#: The settings class of each client.
CLIENTS: dict[str, type[DeclaredSettings]] = {
    "producer": ProducerSettings,
    "consumer": ConsumerSettings,
    "share": ShareConsumerSettings,
    "admin": AdminSettings,
}


@frozen
class Explained:
    """A setting: its valid values, its default as text, its meaning, and the clients that have it."""

    name: str
    #: Name of the keyword argument.
    keyword: str
    takes: str
    default: str
    meaning: str
    clients: tuple[str, ...]
    setting: ClientSetting


def explain(name: str) -> Explained:
    """The setting with this name (`linger.ms` or `linger_ms`). OttlaError, with the nearest name, if there is none."""
    settings = {setting.name: setting for setting in explained()}
    wanted = name.replace("_", ".")
    if wanted not in settings:
        near = difflib.get_close_matches(wanted, settings, n=1, cutoff=0.6)
        raise OttlaError(f"there is no client setting {name}" + (f"; did you mean {near[0]}?" if near else ""))
    return settings[wanted]


def explained() -> list[Explained]:
    """All settings of all clients, sorted by name."""
    declared: dict[str, ClientSetting] = {}
    clients: dict[str, list[str]] = {}
    for client, kind in CLIENTS.items():
        for attribute, setting in kind.declared.items():
            if client == "share" and attribute in NOT_OF_SHARE_CONSUMERS:
                continue
            declared.setdefault(setting.name, setting)
            clients.setdefault(setting.name, []).append(client)
    return [
        Explained(
            name,
            setting.attribute,
            setting.valid_values,
            _default(setting),
            setting.doc,
            tuple(clients[name]),
            setting,
        )
        for name, setting in sorted(declared.items())
    ]


def reference() -> str:
    """The text of docs/reference/client-settings.md."""
    lines = [
        "# Client settings",
        "",
        "Every setting of `Producer`, `Consumer`, `ShareConsumer` and `Admin` (and of their `Async` forms), from the",
        "declarations in `ottla/settings/client/` and `ottla/client/settings/`. Pass a setting under Kafka's name in a",
        'mapping, or as a keyword in snake_case: `Producer({"linger.ms": 5})`,',
        '`Producer("127.0.0.1:9092", linger_ms=5)`. A name ends in its unit, if it has one: `ms` for milliseconds,',
        "`bytes` for bytes. An unknown name is refused, with the nearest valid one.",
        "",
        "*since*: the first release of Apache Kafka that documents the setting (0.9 is the oldest one checked); empty",
        "if Kafka does not have it. *here*: the difference from Apache Kafka, if there is one.",
        "",
    ]
    head = ("setting", "type", "default", "values", "clients", "since", "here", "meaning")
    return "\n".join([*lines, *table(*head, rows=map(_row, explained()))]) + "\n"


def _row(explained: Explained) -> tuple[str, ...]:
    name, setting = explained.name, explained.setting
    clients = "all" if len(explained.clients) == len(CLIENTS) else ", ".join(explained.clients)
    default = f"`{explained.default}`" if explained.default else ""
    kind, differs = setting.type.name.lower(), setting.differs
    return (f"`{name}`", kind, default, explained.takes, clients, since("client", name), differs, explained.meaning)


def _default(setting: ClientSetting) -> str:
    if isinstance(setting.default, Codec):
        return setting.default.name.lower()
    return "all" if setting.name == "acks" else setting.default_text or ""
