"""The client's settings as people look them up: `explain` one, or `reference` of all as Markdown.

All of it comes from the declarations; a test holds docs/reference/client-settings.md equal to it.
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

#: By the word that people use for a client what it declares.
CLIENTS: dict[str, type[DeclaredSettings]] = {
    "producer": ProducerSettings,
    "consumer": ConsumerSettings,
    "share": ShareConsumerSettings,
    "admin": AdminSettings,
}


@frozen
class Explained:
    """A setting: what it takes, its default as it is written, what it means, and the clients that have it."""

    name: str
    #: As a keyword argument.
    keyword: str
    takes: str
    default: str
    meaning: str
    clients: tuple[str, ...]
    setting: ClientSetting


def explain(name: str) -> Explained:
    """The setting of this name (`linger.ms` or `linger_ms`). OttlaError, with the nearest name, if there is none."""
    found = {one.name: one for one in explained()}
    wanted = name.replace("_", ".")
    if wanted not in found:
        near = difflib.get_close_matches(wanted, found, n=1, cutoff=0.6)
        raise OttlaError(f"there is no client setting {name}" + (f"; did you mean {near[0]}?" if near else ""))
    return found[wanted]


def explained() -> list[Explained]:
    """All settings of all clients, by name."""
    declared: dict[str, ClientSetting] = {}
    clients: dict[str, list[str]] = {}
    for client, kind in CLIENTS.items():
        for attribute, one in kind.declared.items():
            if client == "share" and attribute in NOT_OF_SHARE_CONSUMERS:
                continue
            declared.setdefault(one.name, one)
            clients.setdefault(one.name, []).append(client)
    return [
        Explained(name, one.attribute, one.takes, _default(one), one.doc, tuple(clients[name]), one)
        for name, one in sorted(declared.items())
    ]


def reference() -> str:
    """docs/reference/client-settings.md."""
    lines = [
        "# Client settings",
        "",
        "Every setting of `Producer`, `Consumer`, `ShareConsumer` and `Admin` (and of their `Async` forms), from the",
        "declarations in `ottla/settings/client/` and `ottla/client/settings/`. A setting is given by Kafka's name in",
        'a mapping, or as a keyword in snake_case: `Producer({"linger.ms": 5})`,',
        '`Producer("127.0.0.1:9092", linger_ms=5)`. Names end in',
        "their unit: `ms` is milliseconds, `bytes` bytes. An unknown name is refused with the nearest right one.",
        "",
        "*since*: the first release of Apache Kafka whose documentation has it (0.9 is the oldest that was looked at);",
        "empty: Kafka does not have it. *here*: what differs from Apache Kafka; empty: nothing does.",
        "",
    ]
    head = ("setting", "type", "default", "values", "clients", "since", "here", "meaning")
    return "\n".join([*lines, *table(*head, rows=map(_row, explained()))]) + "\n"


def _row(one: Explained) -> tuple[str, ...]:
    clients = "all" if len(one.clients) == len(CLIENTS) else ", ".join(one.clients)
    default = f"`{one.default}`" if one.default else ""
    kind, differs = one.setting.type.name.lower(), one.setting.differs
    return (f"`{one.name}`", kind, default, one.takes, clients, since("client", one.name), differs, one.meaning)


def _default(one: ClientSetting) -> str:
    if isinstance(one.default, Codec):
        return one.default.name.lower()
    return "all" if one.name == "acks" else one.default_text or ""
