"""The settings of servers, topics and groups as people look them up: `reference` writes all of them as Markdown.

All of it comes from the declarations. Tests hold docs/reference/settings.md equal to it, and every declaration to what
Apache Kafka says of the setting.
"""

from __future__ import annotations

from typing import Any

from ottla.settings.group.settings import GroupSettings
from ottla.settings.schema import REQUIRED, ConfigType, Setting, Settings
from ottla.settings.server.settings import ServerSettings
from ottla.settings.server.unserved import STOPS
from ottla.settings.topic.settings import TopicSettings

_HEAD = """\
# Settings of servers, topics and groups

Every setting that Apache Kafka 4.3.1 has, from the declarations in `ottla/settings/`. Names, types, defaults, values
and modes are Kafka's; a test compares each. Settings of clients are in [client-settings.md](client-settings.md).

- *default*: what holds where nothing is said; "worked out" follows from other settings; "must be given" has none.
- *changes*: `read-only` in the file alone, `per-broker` on one node while it runs, `cluster-wide` on all at once too
  (`ottla configs`, KIP-226).
- *without it*: the server setting that holds for a topic or group which has none of its own.
- *here*: what differs from Apache Kafka. Empty: nothing does. "no effect": the node reads it, does nothing with it, and
  says so at its start. "refused": a node does not start with another value than the default.
"""


def reference() -> str:
    """docs/reference/settings.md."""
    return "\n".join(
        [
            _HEAD,
            *_section("Servers", ServerSettings, "changes"),
            *_section("Topics", TopicSettings, "without it"),
            *_section("Groups", GroupSettings, "without it"),
        ]
    )


def _section(title: str, kind: type[Settings], applies: str) -> list[str]:
    rows = [_row(one, modes=kind is ServerSettings) for _, one in sorted(kind.declared().items())]
    return [
        f"## {title}",
        "",
        f"| setting | type | default | takes | {applies} | here | meaning |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
    ]


def _row(one: Setting[Any], *, modes: bool) -> str:
    applies = f"`{one.broker}`" if one.broker else one.mode if modes else "its default"
    cells = (f"`{one.name}`", one.type.name.lower(), _default(one), one.takes, applies, _here(one), one.doc)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(one: Setting[Any]) -> str:
    if one.default is REQUIRED:
        return "must be given"
    if one.derived:
        return "worked out"
    text = one.default_text
    if text is None:
        return ""
    return f"`{text}`" if text else "empty list" if one.type is ConfigType.LIST else "empty"


def _here(one: Setting[Any]) -> str:
    if one.name in STOPS and not one.broker:
        return f"refused: {STOPS[one.name]}"
    return "" if one.served else "no effect"
