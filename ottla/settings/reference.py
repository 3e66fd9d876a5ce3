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
from ottla.settings.server.unserved import STOPS
from ottla.settings.since import since
from ottla.settings.topic.settings import TopicSettings

_HEAD = """\
# Settings of servers, topics, groups, client metrics and quotas

Every setting that Apache Kafka 4.3.1 has, from the declarations in `ottla/settings/`. Names, types, defaults, values
and modes are Kafka's; a test compares each. Settings of clients are in [client-settings.md](client-settings.md).

- *default*: what holds where nothing is said; "worked out" follows from other settings; "must be given" has none.
- *changes*: `read-only` in the file alone, `per-broker` on one node while it runs, `cluster-wide` on all at once too
  (`ottla configs`, KIP-226).
- *without it*: the server setting that holds for a topic or group which has none of its own.
- *since*: the first release of Apache Kafka whose documentation has it (0.9 and, for topics, 0.10.1 are the oldest that
  were looked at); empty where Kafka keeps it out of its documentation. Ottla has had all of them since 0.1.
- *here*: what differs from Apache Kafka. Empty: nothing does. "no effect": the node reads it, does nothing with it, and
  says so at its start. "refused": a node does not start with another value than the default.
"""


def reference() -> str:
    """Return the content of docs/reference/settings.md."""
    return "\n".join(
        [
            _HEAD,
            *_section("Servers", "server", "changes", ServerSettings),
            *_section("Servers: Ottla's own", "own", "changes", OwnSettings),
            *_section("Topics", "topic", "without it", TopicSettings),
            *_section("Groups", "group", "without it", GroupSettings),
            *_section("Client metrics subscriptions (KIP-714)", "client-metrics", "without it", ClientMetricsSettings),
            *_section("Quotas of users, clients and addresses", "quota", "without it", UserQuotas, AddressQuotas),
            *_section("Rates of replication (KIP-73)", "quota", "changes", ReplicationRates),
        ]
    )


def table(*head: str, rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *lines]


def _section(title: str, scope: str, applies: str, *kinds: type[Settings]) -> list[str]:
    found = sorted((one.name, one) for kind in kinds for one in kind.declared().values())
    rows = [_row(one, scope, modes=applies == "changes") for _, one in found]
    head = ("setting", "type", "default", "takes", applies, "since", "here", "meaning")
    return [f"## {title}", "", *table(*head, rows=rows), ""]


def _row(one: Setting[Any], scope: str, *, modes: bool) -> tuple[str, ...]:
    applies = f"`{one.broker}`" if one.broker else one.mode if modes else "its default"
    kind = one.type.name.lower()
    return (f"`{one.name}`", kind, _default(one), one.takes, applies, since(scope, one.name), _here(one), one.doc)


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
    return one.differs if one.served else "no effect"
