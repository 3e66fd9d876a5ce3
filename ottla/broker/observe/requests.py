"""What is counted of requests while metrics are on: how many, how long, which errors, and the bytes of each topic.

Rules:
- The counters stand around the handlers: a node without a metrics listener has its handlers bare.
- What is counted is bounded: APIs and their versions, error codes, and the topics that exist.
- Times run from the request's first byte in the handler to its answer. Quantiles are those of the last one to two
  minutes, by buckets that are a fifth apart.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from struct import Struct
from typing import Any

from ottla.broker.call.handler import Call, Handler
from ottla.broker.call.reply import Later
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.wire.api import ApiKey
from ottla.wire.api.fetch import FetchRequest, FetchResponse
from ottla.wire.api.produce import ProduceRequest
from ottla.wire.batch import HEADER_BYTES

#: Upper bounds in milliseconds: 10 us to about 40 s.
_BOUNDS_MS = tuple(0.01 * 1.2**step for step in range(84))
_WINDOW_MS = 60_000
QUANTILES = (0.5, 0.75, 0.95, 0.99, 0.999)
#: Produce and Fetch name topics by their ids from here on.
_BY_ID_SINCE = 13
#: The number of records in a batch (int32).
_COUNT, _COUNT_AT = Struct(">i"), 57
_PARTITIONS_A_STEP = 200


class Durations:
    """How long the requests of one API took."""

    __slots__ = ("_before", "_now", "_since_ms", "count", "sum_ms")

    def __init__(self) -> None:
        self.count = 0
        self.sum_ms = 0.0
        self._now, self._before = [0] * (len(_BOUNDS_MS) + 1), [0] * (len(_BOUNDS_MS) + 1)
        self._since_ms: int | None = None

    def add(self, took_ms: float) -> None:
        """Count a request."""
        self.count += 1
        self.sum_ms += took_ms
        self._now[bisect_left(_BOUNDS_MS, took_ms)] += 1

    def quantiles(self, now_ms: int) -> Iterator[tuple[float, float]]:
        """(quantile, milliseconds) of the last one to two minutes; nothing where there were no requests."""
        if self._since_ms is None:
            self._since_ms = now_ms
        if now_ms - self._since_ms >= _WINDOW_MS:
            self._now, self._before = [0] * len(self._now), self._now
            self._since_ms = now_ms
        counts = [new + old for new, old in zip(self._now, self._before, strict=True)]
        total, seen, wanted = sum(counts), 0, list(QUANTILES)
        for bound, count in zip((*_BOUNDS_MS, _BOUNDS_MS[-1]), counts, strict=True):
            seen += count
            while total and wanted and seen >= wanted[0] * total:
                yield wanted.pop(0), bound


class Requests:
    """The counters of one node. `around` puts them around a handler."""

    def __init__(self, seconds: Callable[[], float], topic_name: Callable[[Uuid], str | None]) -> None:
        self._seconds = seconds
        self._topic_name = topic_name
        #: (API's name, version) -> requests.
        self.counts: Counter[tuple[str, int]] = Counter()
        #: (API's name, error's name) -> answers, or partitions of answers, with that error.
        self.errors: Counter[tuple[str, str]] = Counter()
        self.durations: dict[str, Durations] = {}
        self.messages_in: Counter[str] = Counter()
        self.bytes_in: Counter[str] = Counter()
        self.bytes_out: Counter[str] = Counter()
        #: Bytes that followers of this node's partitions took.
        self.replication_bytes_out = 0

    def around(self, handler: Handler, *, has_topics: bool) -> Handler:
        """The handler, counted. `has_topics`: are Produce and Fetch those of topics, as on brokers' listeners?"""
        inner, name, seconds = handler.function, handler.api.name, self._seconds
        counts, durations = self.counts, self.durations.setdefault(name, Durations())
        key = handler.api.key if has_topics else None

        def function(call: Call, request: Any) -> Any:
            began = seconds()
            counts[name, call.version] += 1
            # What is behind the records' views is gone when a short request is answered later; a long one has a copy.
            taken = _all(_taken(request)) if key == ApiKey.PRODUCE and not call.is_long else None

            def finished(reply: Any) -> None:
                durations.add((seconds() - began) * 1000)
                if isinstance(reply, KafkaError):
                    self.errors[name, reply.code.name] += 1
                    return
                if getattr(reply, "error_code", 0):
                    self.errors[name, _name_of(reply.error_code)] += 1
                if key == ApiKey.PRODUCE:
                    _carry_out(call, self._produced(call, request, taken, reply))
                elif key == ApiKey.FETCH:
                    _carry_out(call, self._fetched(call, request, reply))

            try:
                reply = inner(call, request)
            except KafkaError as error:
                finished(error)
                raise
            if type(reply) is not Later:
                finished(reply)
                return reply
            later = Later(reply.superseded)

            def resolve(value: Any) -> None:
                finished(value)
                later.resolve(value)

            reply.then(resolve)
            return later

        return Handler(handler.api, function, handler.refuse)

    def keep(self, topics: Mapping[str, object]) -> None:
        """Forget the topics that are gone."""
        for counter in (self.messages_in, self.bytes_in, self.bytes_out):
            for name in [each for each in counter if each not in topics]:
                del counter[name]

    def _produced(
        self, call: Call, request: ProduceRequest, taken: list[_Batch] | None, reply: Any
    ) -> Generator[None, None, None]:
        failed = set()
        # Without acks there is no answer that would say what failed.
        for number, (topic, each) in enumerate(_partitions(getattr(reply, "responses", ()), "partition_responses"), 1):
            if each.error_code:
                self.errors["Produce", _name_of(each.error_code)] += 1
                failed.add((topic.topic_id if call.version >= _BY_ID_SINCE else topic.name, each.index))
            if not number % _PARTITIONS_A_STEP:
                yield
        if taken is None:
            taken = yield from _taken(request)
        for number, (name, topic_id, index, size, count) in enumerate(taken, 1):
            key = topic_id if call.version >= _BY_ID_SINCE else name
            known = name or self._topic_name(topic_id)
            if known is not None and (key, index) not in failed:
                self.bytes_in[known] += size
                self.messages_in[known] += count
            if not number % _PARTITIONS_A_STEP:
                yield

    def _fetched(self, call: Call, request: FetchRequest, reply: FetchResponse) -> Generator[None, None, None]:
        is_replica = max(request.replica_id, request.replica_state.replica_id) >= 0
        for number, (topic, each) in enumerate(_partitions(reply.responses, "partitions"), 1):
            size = len(each.records) if each.records is not None else 0
            if each.error_code:
                self.errors["Fetch", _name_of(each.error_code)] += 1
            elif size and is_replica:
                self.replication_bytes_out += size
            elif size:
                known = self._topic_name(topic.topic_id) if call.version >= _BY_ID_SINCE else topic.topic
                if known is not None:
                    self.bytes_out[known] += size
            if not number % _PARTITIONS_A_STEP:
                yield


#: A batch that is to be written: topic, topic id, partition, bytes, records.
_Batch = tuple[str, Uuid, int, int, int]


def _taken(request: ProduceRequest) -> Generator[None, None, list[_Batch]]:
    found: list[_Batch] = []
    for number, (topic, each) in enumerate(_partitions(request.topic_data, "partition_data"), 1):
        if each.records is not None and len(each.records) >= HEADER_BYTES:
            (count,) = _COUNT.unpack_from(each.records, _COUNT_AT)
            found.append((topic.name, topic.topic_id, each.index, len(each.records), count))
        if not number % _PARTITIONS_A_STEP:
            yield
    return found


def _partitions(topics: Iterable[Any], attribute: str) -> Iterator[tuple[Any, Any]]:
    return ((topic, each) for topic in topics for each in getattr(topic, attribute))


def _all(steps: Generator[None, None, list[_Batch]]) -> list[_Batch]:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return list(done.value)


def _carry_out(call: Call, steps: Generator[None, None, None]) -> None:
    """Now, or for a long request a step at a time, while others have their turns."""
    if not call.is_long:
        for _ in steps:
            pass
        return

    def step() -> None:
        if next(steps, steps) is not steps:
            call.connection.turns.wait(step)

    call.connection.turns.wait(step)


def _name_of(code: int) -> str:
    return ErrorCode(code).name
