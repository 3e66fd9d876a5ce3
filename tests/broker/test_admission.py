"""What the gates of a node's listeners decide, on a clock that stands still."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.limits.admission import Admission, ListenerGate
from ottla.kernel.rate import Rate
from ottla.metadata.image import Image
from ottla.settings.server.settings import ServerSettings
from ottla.settings.server.single_node import single_node

MAX, RATE = "max.connections", "max.connection.creation.rate"
OWN = "listener.name.clients."
Gates = Callable[..., tuple[ListenerGate, ListenerGate]]


@pytest.fixture
def gates() -> Gates:
    """The gates of the brokers' listener and of CLIENTS, with these settings, and ten seconds' worth of quotas."""

    def made(texts: dict[str, str]) -> tuple[ListenerGate, ListenerGate]:
        listeners = {
            "listeners": "PLAINTEXT://:1,CLIENTS://:2,CONTROLLER://:3",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }
        settings = ServerSettings.parse({**single_node("/x", "h", 1, 3), **listeners, **texts})
        admission = Admission(lambda: settings, lambda: 5_000_000)
        return admission.gate("PLAINTEXT"), admission.gate("CLIENTS")

    return made


def test_the_one_that_is_too_fast_waits_until_the_rate_is_down(gates: Gates) -> None:
    brokers, clients = gates({f"{OWN}{RATE}": "2"})
    assert [clients.arrive() for _ in range(23)] == [0] * 20 + [0.5, 1, 1]
    assert brokers.arrive() == 0


def test_the_nodes_own_rate_holds_for_all_that_clients_use(gates: Gates) -> None:
    brokers, clients = gates({RATE: "1", f"listener.name.plaintext.{RATE}": "100"})
    assert [clients.arrive() for _ in range(10)] == [0] * 10
    assert clients.arrive() == 1
    assert brokers.arrive() == 0


def test_a_rate_of_none_makes_everyone_wait_for_a_window(gates: Gates) -> None:
    _, clients = gates({RATE: "0"})
    assert clients.arrive() == 1


def test_an_address_that_is_refused_is_not_counted(gates: Gates) -> None:
    _, clients = gates({RATE: "100", "max.connections.per.ip": "1"})
    clients._admission.follow(replace(Image.empty(), quotas={(("ip", None),): {"connection_creation_rate": 1.0}}))
    for _ in range(10):
        clients.arrive()
        assert clients.enter("10.0.0.1") in (None, 0)
    assert clients._admission.total == 1
    # The address's ten are used up, and the rate of all is what it was.
    for _ in range(2000):
        assert clients.arrive() == 0
        assert clients.enter("10.0.0.1") == 1
    assert clients.has_room()


def test_a_listener_has_room_for_as_many_as_it_may_have_and_the_node_for_all(gates: Gates) -> None:
    brokers, clients = gates({MAX: "3", f"{OWN}{MAX}": "2"})
    for address in ("10.0.0.1", "10.0.0.2"):
        assert clients.has_room()
        assert clients.enter(address) is None
    assert not clients.has_room()
    clients.leave("10.0.0.1")
    for _ in range(2):
        assert brokers.enter("10.0.0.3") is None
    assert not clients.has_room()
    # Its own limit is the node's, where it has none, and the others do not count.
    assert brokers.has_room()
    assert brokers.enter("10.0.0.3") is None
    assert not brokers.has_room()
    brokers.leave("10.0.0.3")
    brokers.leave("10.0.0.3")
    assert clients.has_room()


def test_a_listener_that_the_settings_name_no_more_has_the_nodes_limits(gates: Gates) -> None:
    _, clients = gates({MAX: "1"})
    admission = clients._admission
    settings = admission.settings().with_dynamic({"listeners": "PLAINTEXT://:1,CONTROLLER://:3"})
    assert "CLIENTS" not in settings.connection_limits
    admission.settings = lambda: settings
    assert clients.arrive() == 0
    assert clients.has_room()
    assert clients.enter("10.0.0.1") is None
    assert not clients.has_room()


class _Silent:
    """A connection that was heard of at this time."""

    def __init__(self, gate: ListenerGate, heard_at: float) -> None:
        self.heard_at = heard_at
        self.gate = gate
        self.why = ""

    def close(self, why: str) -> None:
        self.why = why
        cast(Any, self.gate.listener).connections.remove(self)
        self.gate._admission.total -= 1


def test_what_is_too_much_closes_the_connections_that_were_silent_for_longest(gates: Gates) -> None:
    brokers, clients = gates({MAX: "3"})
    connections = [_Silent(clients, heard_at) for heard_at in (5.0, 1.0, 9.0, 3.0, 7.0)]
    clients.listener = cast(Any, SimpleNamespace(connections=list(connections)))
    brokers.listener = cast(Any, SimpleNamespace(connections=[]))
    for _ in connections:
        assert clients._admission.take("address")
    clients._admission.close_excess()
    assert sorted(each.heard_at for each in connections if each.why) == [1.0, 3.0]


def test_a_limit_of_an_address_holds_however_the_address_is_written(gates: Gates) -> None:
    _, clients = gates({"max.connections.per.ip.overrides": "0:0:0:0:0:0:0:1:1, 2001:DB8::A:1, ::ffff:10.0.0.7:1"})
    for address in ("::1", "2001:db8::a", "10.0.0.7"):
        assert clients.enter(address) is None
        assert clients.enter(address) == 0
    for written, address in (
        ("0:0:0:0:0:0:0:2", "::2"),
        ("2001:DB8::B", "2001:db8::b"),
        ("::ffff:10.0.0.8", "10.0.0.8"),
    ):
        clients._admission.follow(
            replace(Image.empty(), quotas={(("ip", written),): {"connection_creation_rate": 1.0}})
        )
        assert [clients.enter(address) for _ in range(11)] == [None] * 10 + [1]


def test_addresses_without_end_cost_no_more_each(gates: Gates, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[None] = []
    is_idle = Rate.is_idle

    def counted(self: Rate, now_ms: int) -> bool:
        looked.append(None)
        return is_idle(self, now_ms)

    monkeypatch.setattr(Rate, "is_idle", counted)
    _, clients = gates({})
    clients._admission.follow(replace(Image.empty(), quotas={(("ip", None),): {"connection_creation_rate": 1.0}}))
    for number in range(2500):
        assert clients.enter(f"10.0.{number // 256}.{number % 256}") is None
    assert len(looked) < 2 * 2500


def test_an_address_that_goes_on_too_fast_is_admitted_again_as_if_it_had_not_been_refused(gates: Gates) -> None:
    _, clients = gates({})
    clients._admission.follow(replace(Image.empty(), quotas={(("ip", None),): {"connection_creation_rate": 1.0}}))
    now_ms = 5_000_000
    clients._admission.now_ms = lambda: now_ms
    entered = 0
    for _ in range(600):
        entered += clients.enter("10.0.0.1") is None
        now_ms += 100
    # Ten at once, and one a second after that.
    assert 50 <= entered <= 70


@pytest.mark.parametrize("protected", [True, False])
def test_a_refused_address_takes_nothing_from_the_rate_of_the_node(gates: Gates, protected: bool) -> None:
    gate, other = gates({RATE: "1", f"{OWN}{RATE}": "99"})[:: 1 if protected else -1]
    clients = other if protected else gate
    clients._admission.follow(replace(Image.empty(), quotas={(("ip", None),): {"connection_creation_rate": 1.0}}))
    for _ in range(10):
        assert gate.enter("10.0.0.1") is None
    # What arrives is counted at first, and taken back when its address is refused.
    for _ in range(50):
        gate.arrive()
        assert gate.enter("10.0.0.1") == 1
    assert [clients.arrive() for _ in range(11)] == [0] * 10 + [1]


def test_brokers_take_the_places_of_clients_and_clients_never_those_of_brokers(gates: Gates) -> None:
    brokers, clients = gates({MAX: "2", f"listener.name.plaintext.{MAX}": "9"})
    admission = clients._admission
    kept = {gate: [_Silent(gate, heard_at) for heard_at in (5.0, 1.0)] for gate in (brokers, clients)}
    for gate in (brokers, clients):
        gate.listener = cast(Any, SimpleNamespace(connections=list(kept[gate]), admit_held=lambda: None))
    for _ in range(2):
        assert clients.enter("10.0.0.1") is None
    assert not clients.has_room()
    assert brokers.has_room()
    assert brokers.enter("10.0.0.2") is None
    assert [bool(each.why) for each in kept[clients]] == [False, True]
    assert brokers.enter("10.0.0.2") is None
    assert [bool(each.why) for each in kept[clients]] == [True, True]
    # No client is left: the brokers stay, however many they are.
    assert brokers.enter("10.0.0.2") is None
    assert admission.total == 3
    assert not any(each.why for each in kept[brokers])


def test_the_only_listener_has_the_limits_of_the_node() -> None:
    settings = ServerSettings.parse({**single_node("/x", "h", 1, 3), MAX: "1", RATE: "1"})
    gate = Admission(lambda: settings, lambda: 5_000_000).gate(settings.inter_broker_listener_name)
    assert not gate.is_protected
    assert [gate.arrive() for _ in range(11)] == [0] * 10 + [1]
    assert gate.enter("10.0.0.1") is None
    assert not gate.has_room()


def test_a_lower_limit_closes_and_a_higher_one_admits(gates: Gates) -> None:
    brokers, clients = gates({MAX: "3"})
    admission = clients._admission
    connections = [_Silent(clients, heard_at) for heard_at in (5.0, 1.0, 9.0)]
    woken: list[str] = []
    for gate, open_ones in ((brokers, []), (clients, list(connections))):
        admit = partial(woken.append, gate.name)
        gate.listener = cast(Any, SimpleNamespace(connections=open_ones, admit_held=admit))
    for _ in connections:
        assert admission.take("address")
    for bound, left in ((3, 3), (2, 2), (5, 2)):
        settings = admission.settings().with_dynamic({MAX: str(bound)})
        admission.settings = partial(_given, settings)
        woken.clear()
        admission.settings_changed()
        assert sum(not each.why for each in connections) == left
        assert sorted(woken) == ["CLIENTS", "PLAINTEXT"]


def _given(settings: ServerSettings) -> ServerSettings:
    return settings


def test_a_rate_of_a_user_is_none_of_addresses(gates: Gates) -> None:
    _, clients = gates({})
    quotas: Any = {(("user", None),): {"connection_creation_rate": 1.0}, (("ip", None),): {"other": 1.0}}
    clients._admission.follow(replace(Image.empty(), quotas=quotas))
    assert [clients.enter("10.0.0.1") for _ in range(20)] == [None] * 20


def test_an_address_at_its_limit_is_in_the_log_once_until_it_is_below_again(
    gates: Gates, caplog: pytest.LogCaptureFixture
) -> None:
    """Its clients only see closed connections."""
    caplog.set_level("INFO")
    _, clients = gates({"max.connections.per.ip": "1", "max.connections.per.ip.overrides": "10.0.0.9:0"})
    # An address that may have none is expected, and there may be very many of them.
    for address in ("10.0.0.7", "10.0.0.7", "10.0.0.7", "10.0.0.8", "10.0.0.9"):
        clients.enter(address)
    assert [record.getMessage().split()[0] for record in caplog.records] == ["10.0.0.7"]
    clients.leave("10.0.0.7")
    for _ in range(3):
        clients.enter("10.0.0.7")
    assert len(caplog.records) == 2 and "1: others from it are rejected" in caplog.text
