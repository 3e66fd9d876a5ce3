"""Admission of connections: limits of their number, in total and per address, and of their rate.

Rules:
- A listener admits up to its own `max.connections` (`listener.name.X.max.connections`, else the node's), and all
  listeners together up to the node's `max.connections`. An excess connection waits until another one closes.
- Connections are admitted at `max.connection.creation.rate`, a listener's own and the node's. One that comes too fast
  is counted, waits until the rate is down, at most one quota window, and is then admitted.
- With several listeners, clients must not keep brokers from reaching each other: the node's limits do not apply to the
  inter-broker listener. If the total is then too high, or a limit is lowered, the connections of other listeners that
  have been idle longest are closed.
- A connection from an address that exceeds its `connection_creation_rate` is closed after its throttle time; one beyond
  `max.connections.per.ip` is closed at once. Neither is counted.

KIPs: 308 and 402 (limits), 612 (rates).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from ottla.controller.quota import CONNECTION_CREATION_RATE, IP
from ottla.kernel.address import canonical_address
from ottla.kernel.rate import Rate
from ottla.metadata.image import Image
from ottla.settings.listener import parse_connection_overrides
from ottla.settings.server.settings import ConnectionLimits

if TYPE_CHECKING:
    from ottla.net.listener import ListeningSocket
    from ottla.settings.server.settings import ServerSettings

_log = logging.getLogger("ottla.broker")
#: Beyond this many addresses the idle ones are dropped.
_ADDRESSES_SWEPT = 1000
#: Every new connection needs them.
_overrides = lru_cache(maxsize=4)(parse_connection_overrides)


class Admission:
    """The limits that all listeners of a node share. The node creates it."""

    def __init__(self, settings: Callable[[], ServerSettings], now_ms: Callable[[], int]) -> None:
        #: A callable, because the settings may change while the node runs.
        self.settings = settings
        self.now_ms = now_ms
        self.total = 0
        self.gates: dict[str, ListenerGate] = {}
        self._counts: Counter[str] = Counter()
        #: The addresses at their limit of which the log has a line.
        self._told: set[str] = set()
        self._rate = self.new_rate()
        self._ip_rates: dict[str, Rate] = {}
        self._swept_at = _ADDRESSES_SWEPT
        #: Address (None: the default) -> rate limit.
        self._ip_bounds: dict[str | None, float] = {}

    def gate(self, listener: str) -> ListenerGate:
        """The gate of one listener."""
        self.gates[listener] = gate = ListenerGate(self, listener)
        return gate

    def follow(self, image: Image) -> None:
        """Apply a change of the quotas of addresses."""
        self._ip_bounds = {}
        for entity, quotas in image.quotas.items():
            name = dict(entity).get(IP, "")
            if name != "" and CONNECTION_CREATION_RATE in quotas:
                try:
                    bound = None if name is None else canonical_address(name)
                except ValueError:
                    # Apache Kafka's controllers accept the name of a host (decision 0140).
                    _log.error("the quota of the IP %s has no effect: it is no address", name)
                else:
                    self._ip_bounds[bound] = quotas[CONNECTION_CREATION_RATE]

    def settings_changed(self) -> None:
        """Apply a change of the limits: close excess connections, and admit waiting ones."""
        self.close_excess()
        self.wake()

    # ---- for the gates

    def throttle_ms(self, rate: Rate, bound: float) -> int:
        """Count one connection, and return how long it must wait."""
        now_ms = self.now_ms()
        rate.record(1, now_ms)
        return min(self._window_ms, rate.throttle_ms(bound, now_ms)) if bound else self._window_ms

    def node_throttle_ms(self) -> int:
        """As `throttle_ms`, for the node's own rate."""
        return self.throttle_ms(self._rate, self.settings().max_connection_creation_rate)

    def uncount(self) -> None:
        """Take the last connection back out of the node's rate: it is not admitted."""
        self._rate.record(-1, self.now_ms())

    def ip_throttle_ms(self, address: str) -> int:
        """The throttle time of a connection from this address. A connection that must wait is not counted."""
        bound = self._ip_bounds.get(address, self._ip_bounds.get(None))
        if bound is None:
            return 0
        rate = self._ip_rates.get(address)
        if rate is None:
            if len(self._ip_rates) >= self._swept_at:
                now_ms = self.now_ms()
                self._ip_rates = {
                    known_address: known_rate
                    for known_address, known_rate in self._ip_rates.items()
                    if not known_rate.is_idle(now_ms)
                }
                self._swept_at = max(_ADDRESSES_SWEPT, 2 * len(self._ip_rates))
            rate = self._ip_rates[address] = self.new_rate()
        wait_ms = self.throttle_ms(rate, bound)
        if wait_ms:
            rate.record(-1, self.now_ms())
        return wait_ms

    def take(self, address: str) -> bool:
        """Count a connection; False if its address has reached its limit."""
        settings = self.settings()
        overrides = _overrides(settings.max_connections_per_ip_overrides)
        limit = overrides.get(address, settings.max_connections_per_ip)
        if self._counts[address] >= limit:
            if limit and address not in self._told:
                self._told.add(address)
                _log.info("%s has as many connections as it may, %d: others from it are rejected", address, limit)
            return False
        self._counts[address] += 1
        self.total += 1
        return True

    def give_back(self, address: str) -> None:
        """Release the slot of an admitted connection that has closed, and wake waiting ones on any listener."""
        self.total -= 1
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]
            self._told.discard(address)
        self.wake()

    def wake(self) -> None:
        """Wake the gates, because a waiting connection may fit now."""
        for gate in self.gates.values():
            gate.wake()

    def close_excess(self) -> None:
        """Close the clients' connections that have been idle longest, as long as there are too many."""
        while self.total > self.settings().max_connections:
            listeners = [gate.listener for gate in self.gates.values() if gate.listener and not gate.is_protected]
            open_ones = [connection for listener in listeners for connection in listener.connections]
            if not open_ones:
                return
            min(open_ones, key=lambda each: each.heard_at).close("there are more connections than max.connections")

    def new_rate(self) -> Rate:
        """A rate with this node's quota windows."""
        return Rate(self.settings().quota_window_num, self._window_ms)

    @property
    def _window_ms(self) -> int:
        return self.settings().quota_window_size_seconds * 1000


class ListenerGate:
    """The admission of one listener. `Admission.gate` creates it."""

    def __init__(self, admission: Admission, name: str) -> None:
        self.name = name
        self.listener: ListeningSocket | None = None
        self._admission = admission
        self._count = 0
        self._rate = admission.new_rate()

    @property
    def is_protected(self) -> bool:
        """Whether this is the inter-broker listener and clients use other listeners."""
        admission = self._admission
        return len(admission.gates) > 1 and admission.settings().inter_broker_listener_name == self.name

    @property
    def _limits(self) -> ConnectionLimits:
        """The listener's limits; the node's if `listeners` no longer names it (it serves until the node stops)."""
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
        """Look at this listener's waiting connections again."""
        if self.listener is not None:
            self.listener.admit_held()
