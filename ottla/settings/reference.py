"""The settings reference: `reference` returns all settings of a cluster as Markdown.

It is generated from the declarations. Tests keep docs/reference/settings.md equal to it, and each declaration equal to
Apache Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ottla.settings.client_metrics import ClientMetricsSettings
from ottla.settings.group.settings import GroupSettings
from ottla.settings.quota import AddressQuotas, ReplicationRates, UserQuotas
from ottla.settings.schema import REQUIRED, ConfigType, Setting, Settings
from ottla.settings.server.own import OwnSettings
from ottla.settings.server.settings import ServerSettings
from ottla.settings.server.unserved import UNSUPPORTED
from ottla.settings.since import since
from ottla.settings.topic.settings import TopicSettings

_HEAD = """\
# Settings of servers, topics, groups, client metrics and quotas

All settings of Apache Kafka 4.3.1, generated from the declarations in `ottla/settings/`. Names, types, defaults, valid
values and modes are Kafka's; a test compares each. [client-settings.md](client-settings.md) has the client settings.

- *default*: the value of a setting that is not set. "computed" depends on other settings; "required" has no default.
- *changes*: `read-only` only in the file, `per-broker` dynamically for one node, `cluster-wide` also for all nodes at
  once (`ottla configs`, KIP-226).
- *fallback*: the server setting that applies to a topic or group without its own value.
- *since*: the first release of Apache Kafka whose documentation has it (the oldest considered are 0.9 and, for topics,
  0.10.1); empty if Kafka does not document it. Ottla has had all of them since 0.1.
- *here*: the differences from Apache Kafka; empty if there are none. "no effect": the node reads the setting, does
  nothing with it, and logs that at startup. "refused": a node starts only with the default.
"""


def reference() -> str:
    """Return the content of docs/reference/settings.md."""
    return "\n".join(
        [
            _HEAD,
            *_section("Servers", "server", "changes", ServerSettings),
            *_section("Servers: Ottla's own", "own", "changes", OwnSettings),
            *_section("Topics", "topic", "fallback", TopicSettings),
            *_section("Groups", "group", "fallback", GroupSettings),
            *_section("Client metrics subscriptions (KIP-714)", "client-metrics", "fallback", ClientMetricsSettings),
            *_section("Quotas of users, clients and addresses", "quota", "fallback", UserQuotas, AddressQuotas),
            *_section("Replication rates (KIP-73)", "quota", "changes", ReplicationRates),
        ]
    )


def table(*head: str, rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *lines]


def _section(title: str, scope: str, applies: str, *kinds: type[Settings]) -> list[str]:
    declared = sorted((setting.name, setting) for kind in kinds for setting in kind.declared().values())
    rows = [_row(setting, scope, modes=applies == "changes") for _, setting in declared]
    head = ("setting", "type", "default", "values", applies, "since", "here", "meaning")
    return [f"## {title}", "", *table(*head, rows=rows), ""]


def _row(setting: Setting[Any], scope: str, *, modes: bool) -> tuple[str, ...]:
    applies = f"`{setting.broker}`" if setting.broker else setting.mode if modes else "its default"
    kind = setting.type.name.lower()
    return (
        f"`{setting.name}`",
        kind,
        _default(setting),
        setting.valid_values,
        applies,
        since(scope, setting.name),
        _here(setting),
        setting.doc,
    )


def _default(setting: Setting[Any]) -> str:
    if setting.default is REQUIRED:
        return "required"
    if setting.derived:
        return "computed"
    text = setting.default_text
    if text is None:
        return ""
    return f"`{text}`" if text else "empty list" if setting.type is ConfigType.LIST else "empty"


def _here(setting: Setting[Any]) -> str:
    if setting.name in UNSUPPORTED and not setting.broker:
        return f"refused: {UNSUPPORTED[setting.name]}"
    return setting.differs if setting.served else "no effect"
