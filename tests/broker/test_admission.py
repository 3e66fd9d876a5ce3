"""What the gates of a node's listeners decide, on a clock that stands still."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
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
