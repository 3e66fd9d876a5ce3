"""Which connections are taken: how many at once, how many of one address, how fast.

Rules:
- A listener takes `max.connections` of its own (`listener.name.X.max.connections` goes before the node's), and all
  together the node's `max.connections`. The one that is too many waits for another to go.
- They come at `max.connection.creation.rate`, each listener's own and the node's. The one that is too fast is counted,
  waits as long as the rate needs to come down, at most one window of the quota, and is then taken.
- Where there are several listeners, brokers reach each other whatever the clients do: on the inter-broker listener the
  node's own limits do not count. What is then too much, or was since a limit became lower, closes the connections of
  other listeners that have been silent for longest.
- An address that comes faster than its `connection_creation_rate` is closed after the time that it should have waited;
  one that has `max.connections.per.ip` of them is closed at once. Neither is counted.

KIPs: 308 and 402 (limits), 612 (rates).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ottla.controller.quota import CONNECTION_CREATION_RATE, IP
from ottla.kernel.rate import Rate
from ottla.metadata.image import Image
from ottla.settings.server.settings import ConnectionLimits

if TYPE_CHECKING:
    from ottla.net.listener import ListeningSocket
    from ottla.settings.server.settings import ServerSettings

_ADDRESSES_SWEPT = 1000


class Admission:
    """What all listeners of a node count together; the node makes it."""

    def __init__(self, settings: Callable[[], ServerSettings], now_ms: Callable[[], int]) -> None:
        #: They may change while the node runs.
        self.settings = settings
        self.now_ms = now_ms
        self.total = 0
        self.gates: dict[str, ListenerGate] = {}
        self._counts: Counter[str] = Counter()
        self._rate = self.new_rate()
        self._ip_rates: dict[str, Rate] = {}
        #: By address, None for the default.
        self._ip_bounds: dict[str | None, float] = {}

    def gate(self, listener: str) -> ListenerGate:
        """The gate of one listener for brokers and clients."""
        self.gates[listener] = gate = ListenerGate(self, listener)
        return gate

    def follow(self, image: Image) -> None:
        """Quotas of addresses may have changed."""
        self._ip_bounds = {}
        for entity, quotas in image.quotas.items():
            name = dict(entity).get(IP, "")
            if name != "" and CONNECTION_CREATION_RATE in quotas:
                self._ip_bounds[name] = quotas[CONNECTION_CREATION_RATE]

    def settings_changed(self) -> None:
        """Limits may be others: let in who waited, close what is too much."""
        self.close_excess()
        self.wake()

    # ---- what the gates ask

    def throttle_ms(self, rate: Rate, bound: float) -> int:
        """Count one more, and tell how long it has to wait."""
        now_ms = self.now_ms()
        rate.record(1, now_ms)
        return min(self._window_ms, rate.throttle_ms(bound, now_ms)) if bound else self._window_ms

    def node_throttle_ms(self) -> int:
        """The same for the node's own rate."""
        return self.throttle_ms(self._rate, self.settings().max_connection_creation_rate)

    def uncount(self) -> None:
        """The connection that was counted last is not taken."""
        self._rate.record(-1, self.now_ms())

    def ip_throttle_ms(self, address: str) -> int:
        """How long an address that comes too fast should have waited; only one that need not wait is counted."""
        bound = self._ip_bounds.get(address, self._ip_bounds.get(None))
        if bound is None:
            return 0
        rate = self._ip_rates.get(address)
        if rate is None:
            if len(self._ip_rates) >= _ADDRESSES_SWEPT:
                now_ms = self.now_ms()
                self._ip_rates = {each: one for each, one in self._ip_rates.items() if not one.is_idle(now_ms)}
            rate = self._ip_rates[address] = self.new_rate()
        wait_ms = self.throttle_ms(rate, bound)
        if wait_ms:
            rate.record(-1, self.now_ms())
        return wait_ms

    def take(self, address: str) -> bool:
        """Count a connection; False when its address has as many as it may have."""
        settings = self.settings()
        if self._counts[address] >= _overrides(settings).get(address, settings.max_connections_per_ip):
            return False
        self._counts[address] += 1
        self.total += 1
        return True

    def give_back(self, address: str) -> None:
        """A connection that was taken is gone: another may have its place, on any listener."""
        self.total -= 1
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]
        self.wake()

    def wake(self) -> None:
        """A connection that waits may be let in now."""
        for gate in self.gates.values():
            gate.wake()

    def close_excess(self) -> None:
        """Close the connections of clients that were silent for longest, as long as there are too many."""
        while self.total > self.settings().max_connections:
            listeners = [gate.listener for gate in self.gates.values() if gate.listener and not gate.is_protected]
            open_ones = [each for listener in listeners for each in listener.connections]
            if not open_ones:
                return
            min(open_ones, key=lambda each: each.heard_at).close("there are more connections than max.connections")

    def new_rate(self) -> Rate:
        """A rate as this node's quotas measure it."""
        return Rate(self.settings().quota_window_num, self._window_ms)

    @property
    def _window_ms(self) -> int:
        return self.settings().quota_window_size_seconds * 1000


class ListenerGate:
    """What one listener asks. `Admission.gate` makes it."""

    def __init__(self, admission: Admission, name: str) -> None:
        self.name = name
        self.listener: ListeningSocket | None = None
        self._admission = admission
        self._count = 0
        self._rate = admission.new_rate()

    @property
    def is_protected(self) -> bool:
        """Do brokers come here, and clients elsewhere?"""
        admission = self._admission
        return len(admission.gates) > 1 and admission.settings().inter_broker_listener_name == self.name

    @property
    def _limits(self) -> ConnectionLimits:
        """Its own; the node's once `listeners` names it no more, as it serves until the node stops."""
        settings = self._admission.settings()
        nodes = ConnectionLimits(settings.max_connections, settings.max_connection_creation_rate)
        return settings.connection_limits.get(self.name, nodes)

    def attach(self, listener: ListeningSocket) -> None:
        self.listener = listener

    def arrive(self) -> float:
        limits = self._limits
        node_ms = 0 if self.is_protected else self._admission.node_throttle_ms()
        return max(node_ms, self._admission.throttle_ms(self._rate, limits.max_connection_creation_rate)) / 1000

    def has_room(self) -> bool:
        if self._count >= self._limits.max_connections:
            return False
        return self.is_protected or self._admission.total < self._admission.settings().max_connections

    def enter(self, address: str) -> float | None:
        wait_ms = self._admission.ip_throttle_ms(address)
        if wait_ms:
            self._rate.record(-1, self._admission.now_ms())
            if not self.is_protected:
                self._admission.uncount()
            return wait_ms / 1000
        if not self._admission.take(address):
            return 0
        self._count += 1
        if self.is_protected:
            self._admission.close_excess()
        return None

    def leave(self, address: str) -> None:
        self._count -= 1
        self._admission.give_back(address)

    def wake(self) -> None:
        """A connection that waits at this listener may be let in now."""
        if self.listener is not None:
            self.listener.look_again()


def _overrides(settings: ServerSettings) -> Mapping[str, int]:
    """`max.connections.per.ip.overrides`: address:count of each."""
    text = settings.max_connections_per_ip_overrides
    pairs = (each.strip().rpartition(":") for each in text.split(",") if each.strip())
    return {address.strip(): int(count) for address, _, count in pairs}
