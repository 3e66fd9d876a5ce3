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
from ottla.settings.client.schema import Declared, DeclaredSettings
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


def explain(name: str) -> Explained:
    """The setting of this name (`linger.ms` or `linger_ms`). OttlaError, with the nearest name, if there is none."""
    found = {one.name: one for one in explained()}
    wanted = name.replace("_", ".")
    if wanted not in found:
        near = difflib.get_close_matches(wanted, found, n=1, cutoff=0.6)
        raise OttlaError(f"there is no client setting {name}" + (f": did you mean {near[0]}?" if near else ""))
    return found[wanted]


def explained() -> list[Explained]:
    """All settings of all clients, by name."""
    declared: dict[str, Declared] = {}
    clients: dict[str, list[str]] = {}
    for client, kind in CLIENTS.items():
        for attribute, one in kind.declared.items():
            if client == "share" and attribute in NOT_OF_SHARE_CONSUMERS:
                continue
            declared.setdefault(one.name, one)
            clients.setdefault(one.name, []).append(client)
    return [
        Explained(name, one.attribute, _takes(one), _default(one), one.doc, tuple(clients[name]))
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
        "| setting | takes | default | clients | meaning |",
        "|---|---|---|---|---|",
    ]
    for one in explained():
        clients = "all" if len(one.clients) == len(CLIENTS) else ", ".join(one.clients)
        cells = (f"`{one.name}`", one.takes, f"`{one.default}`" if one.default else "", clients, one.meaning)
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def _takes(one: Declared) -> str:
    """What a value may be, in the words of the error for one that may not."""
    try:
        one.read(_Nothing())
    except (ValueError, TypeError) as error:
        return str(error)
    return "any value"


class _Nothing:
    """A value that no setting takes."""


def _default(one: Declared) -> str:
    value = one.default
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    if isinstance(value, Codec):
        return value.name.lower()
    if one.name == "acks":
        return "all"
    return "" if value is None else str(value)
