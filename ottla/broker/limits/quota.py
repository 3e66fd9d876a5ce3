"""Client quotas: measures clients and decides how long they must wait. Callers pass the time.

Rules:
- Eight entities can hold a quota for a user and a client id; the most specific one applies (`_order`). Clients
  are measured together if they share what that entity names: a user, a client id, or both. A default applies to each
  user or client id separately.
- The response leaves at once and tells the client its throttle time; its connection is not read meanwhile.
- A fetch over its quota gets no records, and the bytes it would have read are not counted.
- The throttle time for time on the loop (`request_percentage`) is at most one window at a time, as in Kafka.
- A controller mutation is a created or deleted partition. A client that understands the error (`strict`) is refused
  once its bucket is overdrawn; an older client gets everything and waits.

While no quota is set, nothing is measured: `active` is False.

KIPs: 13, 55, 124 request time, 219 the response first, 599 controller mutations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Generic, TypeVar

from ottla.controller.quota import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
)
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.rate import Rate, TokenBucket
from ottla.metadata.image import Image, QuotaEntity
from ottla.settings.server.settings import ServerSettings

#: Beyond this many clients the idle ones are dropped.
_CLIENTS_SWEPT = 1000
_DEFAULT = None

Key = tuple[str, str]
M = TypeVar("M")


class _Meters(Generic[M]):
    """The meters of one kind of quota, one for each group of clients measured together."""

    def __init__(self, key: str, make: Callable[[], M], is_idle: Callable[[M, float, int], bool]) -> None:
        self.key = key
        self._make = make
        self._is_idle = is_idle
        self.meters: dict[Key, M] = {}
        self._swept_at = _CLIENTS_SWEPT

    def meter(self, key: Key, bound: float, now_ms: int) -> M:
        meter = self.meters.get(key)
        if meter is None:
            if len(self.meters) >= self._swept_at:
                self.meters = {
                    known_key: known_meter
                    for known_key, known_meter in self.meters.items()
                    if not self._is_idle(known_meter, bound, now_ms)
                }
                self._swept_at = max(_CLIENTS_SWEPT, 2 * len(self.meters))
            meter = self.meters[key] = self._make()
        return meter


class Quotas:
    """A node's client quotas, as set in the metadata. The node creates it."""

    def __init__(self, windows: int, window_seconds: int, burst_seconds: int) -> None:
        self._windows, self._window_ms = windows, window_seconds * 1000
        self._produce = self._rates(PRODUCER_BYTE_RATE)
        self._fetch = self._rates(CONSUMER_BYTE_RATE)
        self._time = self._rates(REQUEST_PERCENTAGE)
        self._mutations = _Meters(
            CONTROLLER_MUTATION_RATE,
            lambda: TokenBucket(burst_seconds),
            lambda each, bound, now: each.is_full(bound, now),
        )
        self._quotas: Mapping[QuotaEntity, Mapping[str, float]] = {}
        #: False while no quota is set.
        self.active = False

    @classmethod
    def of(cls, settings: ServerSettings) -> Quotas:
        """Quotas with the windows from the settings."""
        burst_seconds = settings.controller_quota_window_num * settings.controller_quota_window_size_seconds
        return cls(settings.quota_window_num, settings.quota_window_size_seconds, burst_seconds)

    def _rates(self, key: str) -> _Meters[Rate]:
        return _Meters(key, lambda: Rate(self._windows, self._window_ms), lambda each, _, now: each.is_idle(now))

    def follow(self, image: Image) -> None:
        """Apply a change of the quotas."""
        self._quotas = image.quotas
        self.active = any(kind != "ip" for entity in image.quotas for kind, _ in entity)

    # ---- measuring

    def produced(self, user: str, client_id: str, size: int, now_ms: int) -> int:
        """Count a produce request; return its throttle time."""
        return self._record(self._produce, user, client_id, size, now_ms)

    def fetched(self, user: str, client_id: str, size: int, now_ms: int) -> int:
        """Count the bytes of a fetch and return 0, or return its throttle time without counting them."""
        throttle_ms = self._record(self._fetch, user, client_id, size, now_ms)
        if throttle_ms:
            self._record(self._fetch, user, client_id, -size, now_ms)
        return throttle_ms

    def shared(self, user: str, client_id: str, size: int, now_ms: int) -> int:
        """Count the bytes of a share fetch, whose records are already acquired; return its throttle time."""
        return self._record(self._fetch, user, client_id, size, now_ms)

    def fetch_bytes_max(self, user: str, client_id: str) -> int | None:
        """The most bytes that one fetch may read within the quota; None if there is no quota."""
        quota = self._bound(self._fetch.key, user, client_id)
        return None if quota is None else int(quota[1] * (self._windows - 1) * self._window_ms / 1000)

    def used(self, user: str, client_id: str, seconds: float, now_ms: int) -> int:
        """Count time on the loop; return the throttle time, at most one window."""
        return min(self._window_ms, self._record(self._time, user, client_id, seconds * 100, now_ms))

    def _record(self, meters: _Meters[Rate], user: str, client_id: str, value: float, now_ms: int) -> int:
        quota = self._bound(meters.key, user, client_id)
        if quota is None:
            return 0
        key, bound = quota
        rate = meters.meter(key, bound, now_ms)
        rate.record(value, now_ms)
        return rate.throttle_ms(bound, now_ms)

    def mutations(self, user: str, client_id: str, now_ms: int, *, strict: bool) -> Mutations | None:
        """The bucket for one request's controller mutations; None if there is no quota."""
        quota = self._bound(self._mutations.key, user, client_id)
        if quota is None:
            return None
        return Mutations(self._mutations.meter(*quota, now_ms), quota[1], now_ms, strict)

    # ---- finding the quota

    def _bound(self, name: str, user: str, client_id: str) -> tuple[Key, float] | None:
        """(meter key, bound) of the most specific entity with this quota."""
        for entity, key in _order(user, client_id):
            bound = self._quotas.get(entity, _NONE).get(name)
            if bound is not None:
                # Apache Kafka's controllers accept NaN, which limits nothing there either.
                return (key, bound) if isfinite(bound) else None
        return None


class Mutations:
    """The controller mutations of one request, charged to a bucket."""

    def __init__(self, bucket: TokenBucket, per_second: float, now_ms: int, strict: bool) -> None:
        self._bucket = bucket
        self._per_second = per_second
        self._now_ms = now_ms
        self._strict = strict
        #: How long the client must wait.
        self.throttle_ms = 0

    def charge(self, partitions: int) -> None:
        """Charge created or deleted partitions. THROTTLING_QUOTA_EXCEEDED if the bucket is already overdrawn."""
        overdrawn_ms = self._bucket.throttle_ms(self._per_second, self._now_ms)
        if self._strict and overdrawn_ms:
            self.throttle_ms = overdrawn_ms
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        self._bucket.take(partitions, self._per_second, self._now_ms)
        if not self._strict:
            self.throttle_ms = self._bucket.throttle_ms(self._per_second, self._now_ms)


def _order(user: str, client_id: str) -> tuple[tuple[QuotaEntity, Key], ...]:
    """The entities that may hold a quota, most specific first, each with the key of its meter."""
    both, of_user, of_client = (user, client_id), (user, ""), ("", client_id)
    return (
        (((CLIENT_ID, client_id), (USER, user)), both),
        (((CLIENT_ID, _DEFAULT), (USER, user)), both),
        (((USER, user),), of_user),
        (((CLIENT_ID, client_id), (USER, _DEFAULT)), both),
        (((CLIENT_ID, _DEFAULT), (USER, _DEFAULT)), both),
        (((USER, _DEFAULT),), of_user),
        (((CLIENT_ID, client_id),), of_client),
        (((CLIENT_ID, _DEFAULT),), of_client),
    )


_NONE: Mapping[str, float] = {}
