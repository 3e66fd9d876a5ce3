"""Which connections are taken: how many at once, how many of one address, how fast.

Rules:
- An address that has `max.connections.per.ip` of them is closed at once.
- An address that comes faster than its `connection_creation_rate` is closed after the time that it should have waited,
  which is at most one window of the quota; the connection is not counted.
- All together they wait in the backlog: for a connection to go when there are `max.connections`, for their turn when
  they come faster than `max.connection.creation.rate`.

KIPs: 308 and 402 (limits), 612 (rates).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ottla.cluster.image import Image
from ottla.cluster.quota import CONNECTION_CREATION_RATE, IP
from ottla.kernel.rate import Rate

if TYPE_CHECKING:
    from ottla.kernel.server_settings import ServerSettings

_UNLIMITED = (1 << 31) - 1
_ADDRESSES_SWEPT = 1000
_NOTHING: Mapping[str, float] = {}


class Admission:
    """The gate of all listeners of a node, which makes it."""

    def __init__(self, settings: Callable[[], ServerSettings], now_ms: Callable[[], int]) -> None:
        #: They may change while the node runs.
        self._settings = settings
        self._now_ms = now_ms
        self._counts: Counter[str] = Counter()
        self._total = 0
        self._rate = self._new_rate()
        self._ip_rates: dict[str, Rate] = {}
        #: By address, None for the default.
        self._ip_bounds: dict[str | None, float] = {}

    def follow(self, image: Image) -> None:
        """Quotas of addresses may have changed."""
        self._ip_bounds = {}
        for entity, quotas in image.quotas.items():
            name = dict(entity).get(IP, "")
            if name != "" and CONNECTION_CREATION_RATE in quotas:
                self._ip_bounds[name] = quotas[CONNECTION_CREATION_RATE]

    # ---- what a listener asks

    def delay(self) -> float:
        """Seconds until the next connection may be accepted; infinite until one of those that are there has gone."""
        settings = self._settings()
        if self._total >= settings.max_connections:
            return math.inf
        bound = settings.max_connection_creation_rate
        if bound == _UNLIMITED:
            return 0
        return min(self._window_ms, self._rate.throttle_ms(bound, self._now_ms())) / 1000

    def enter(self, address: str) -> float | None:
        """Count a connection that is accepted; None when it is taken, else seconds until it is to be closed."""
        settings = self._settings()
        most = _overrides(settings).get(address, settings.max_connections_per_ip)
        if self._counts[address] >= most:
            return 0
        wait_ms = self._ip_throttle_ms(address)
        if wait_ms:
            return wait_ms / 1000
        self._counts[address] += 1
        self._total += 1
        if settings.max_connection_creation_rate != _UNLIMITED:
            self._rate.record(1, self._now_ms())
        return None

    def leave(self, address: str) -> None:
        """A connection that was taken is gone."""
        self._total -= 1
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]

    # ---- rates

    @property
    def _window_ms(self) -> int:
        return self._settings().quota_window_size_seconds * 1000

    def _new_rate(self) -> Rate:
        return Rate(self._settings().quota_window_num, self._window_ms)

    def _ip_throttle_ms(self, address: str) -> int:
        bound = self._ip_bounds.get(address, self._ip_bounds.get(None))
        if bound is None:
            return 0
        now_ms = self._now_ms()
        rate = self._ip_rates.get(address)
        if rate is None:
            if len(self._ip_rates) >= _ADDRESSES_SWEPT:
                self._ip_rates = {each: one for each, one in self._ip_rates.items() if not one.is_idle(now_ms)}
            rate = self._ip_rates[address] = self._new_rate()
        rate.record(1, now_ms)
        wait_ms = min(self._window_ms, rate.throttle_ms(bound, now_ms))
        if wait_ms:
            rate.record(-1, now_ms)
        return wait_ms


def _overrides(settings: ServerSettings) -> dict[str, int]:
    """`max.connections.per.ip.overrides`: address:count of each."""
    text = settings.max_connections_per_ip_overrides
    pairs = (each.strip().rpartition(":") for each in text.split(",") if each.strip())
    return {address.strip(): int(count) for address, _, count in pairs}
