"""Settings of clients, client metrics and quotas against Apache Kafka 4.3.1, and since when they are there.

tests/golden/settings/clients_4.3.1.txt holds what the jars of that release say: name, type, default, importance, check.
"""

from pathlib import Path

import pytest

from ottla.client.settings.reference import CLIENTS, explained
from ottla.settings.client_metrics import ClientMetricsSettings
from ottla.settings.group.settings import GroupSettings
from ottla.settings.quota import AddressQuotas, ReplicationRates, UserQuotas
from ottla.settings.schema import Settings
from ottla.settings.server.settings import ServerSettings
from ottla.settings.since import listed, since
from ottla.settings.topic.settings import TopicSettings

_FACTS = Path(__file__).parents[1] / "golden" / "settings" / "clients_4.3.1.txt"
_CLASSES: dict[str, type[Settings]] = {
    "client-metrics": ClientMetricsSettings,
    "user": UserQuotas,
    "ip": AddressQuotas,
    "rate": ReplicationRates,
}


def _facts() -> dict[str, dict[str, tuple[str, str]]]:
    """By kind and name: type and default."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    rows: dict[str, tuple[str, str]] = {}
    for line in _FACTS.read_text().splitlines():
        if line.startswith("####"):
            rows = found.setdefault(line.split()[1], {})
        else:
            name, kind, default, *_ = (each.strip() for each in line.split(" | "))
            rows[name] = (kind, default)
    return found


FACTS = _facts()


@pytest.mark.parametrize("kind", _CLASSES)
def test_exactly_kafkas_settings_are_declared_as_kafka_has_them(kind: str) -> None:
    ours = {name: (one.type.name, one.default_text) for name, one in _CLASSES[kind].declared().items()}
    assert ours == {name: (of, default.strip("[]")) for name, (of, default) in FACTS[kind].items()}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_clients_setting_has_kafkas_type_and_default_or_says_what_differs(client: str) -> None:
    """Where a default has no text here, Kafka's is null, or the setting must be given."""
    facts = FACTS["consumer" if client == "share" else client]
    shown = {one.name: one.default for one in explained()}
    wrong = {}
    for one in CLIENTS[client].declared.values():
        kind, default = facts.get(one.name, ("", ""))
        plain = default.strip("[]").replace(", ", ",").lower()
        same = shown[one.name].lower() == plain or (not shown[one.name] and plain in ("null", "required", ""))
        if (one.type.name != kind or not same) and not one.differs:
            wrong[one.name] = (one.type.name, shown[one.name], kind, default)
    assert wrong == {}


def test_what_differs_is_said_only_where_something_does() -> None:
    kinds = {"producer": "producer", "consumer": "consumer", "share": "consumer", "admin": "admin"}
    for one in explained():
        facts = [FACTS[kinds[client]].get(one.name) for client in one.clients]
        if all(fact is not None and fact == (one.setting.type.name, one.default) for fact in facts):
            assert not one.setting.differs, one.name


def test_every_setting_that_kafka_documents_says_since_when() -> None:
    classes: dict[str, list[type[Settings]]] = {
        "server": [ServerSettings],
        "topic": [TopicSettings],
        "group": [GroupSettings],
        "client-metrics": [ClientMetricsSettings],
        "quota": [UserQuotas, AddressQuotas, ReplicationRates],
    }
    declared: dict[str, set[str]] = {
        scope: {name for kind in kinds for name, one in kind.declared().items() if not one.internal}
        for scope, kinds in classes.items()
    }
    kafkas = set().union(*(FACTS[kind] for kind in ("producer", "consumer", "admin")))
    declared["client"] = {one.name for one in explained() if one.name in kafkas}
    assert {scope: listed(scope) ^ names for scope, names in declared.items()} == {scope: set() for scope in declared}
    releases = {since(scope, name) for scope, names in declared.items() for name in names}
    assert {tuple(map(int, each.split("."))) <= (4, 3) for each in releases} == {True}
