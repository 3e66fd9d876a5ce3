"""Request metrics: counts, durations, errors, and bytes per topic.

Rules:
- The counters wrap the handlers: a node without a metrics listener has bare handlers.
- All labels are bounded: APIs and their versions, error codes, and existing topics.
- Durations run from the handler's start to the response. Quantiles cover the last one to two minutes, in buckets that
  grow by a fifth.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from struct import Struct
from typing import Any

from ottla.broker.call.handler import Call, Handler
from ottla.broker.call.reply import reported
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.raft.message import replica_id
from ottla.wire.api import ApiKey
from ottla.wire.api.fetch import FetchResponse
from ottla.wire.api.produce import ProduceRequest, TopicProduceData
from ottla.wire.batch import HEADER_BYTES

#: Upper bounds in milliseconds: 10 us to about 40 s.
_BOUNDS_MS = tuple(0.01 * 1.2**step for step in range(84))
_WINDOW_MS = 60_000
QUANTILES = (0.5, 0.75, 0.95, 0.99, 0.999)
#: Produce and Fetch use topic ids from this version on.
_BY_ID_SINCE = 13
#: Format and position of the number of records in a batch.
_COUNT, _COUNT_AT = Struct(">i"), 57
_PARTITIONS_PER_STEP = 200


class Durations:
    """The durations of one API's requests."""

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
        """(quantile, milliseconds) over the last one to two minutes; nothing without requests."""
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


class TopicCounts(Counter[str]):
    """Counts by topic. The total keeps what deleted topics had, because a Prometheus counter must not fall."""

    _deleted = 0

    def total(self) -> int:
        """The count of all topics, deleted ones included."""
        return super().total() + self._deleted

    def keep(self, topics: Mapping[str, object]) -> None:
        """Drop deleted topics."""
        for name in [each for each in self if each not in topics]:
            self._deleted += self.pop(name)


class Requests:
    """The request counters of one node. `around` wraps a handler with them."""

    def __init__(self, seconds: Callable[[], float], topic_name: Callable[[Uuid], str | None]) -> None:
        self._seconds = seconds
        self._topic_name = topic_name
        #: (API name, version) -> requests.
        self.counts: Counter[tuple[str, int]] = Counter()
        #: (API name, error name) -> responses, or partitions in responses, with that error.
        self.errors: Counter[tuple[str, str]] = Counter()
        self.durations: dict[str, Durations] = {}
        self.messages_in, self.bytes_in, self.bytes_out = TopicCounts(), TopicCounts(), TopicCounts()
        #: Bytes that followers fetched from this node.
        self.replication_bytes_out = 0

    def around(self, handler: Handler, *, has_topics: bool) -> Handler:
        """The handler, with counters. `has_topics`: Produce and Fetch are about topics, as on brokers' listeners."""
        inner, name, seconds = handler.function, handler.api.name, self._seconds
        counts, durations = self.counts, self.durations.setdefault(name, Durations())
        is_produce = has_topics and handler.api.key == ApiKey.PRODUCE
        is_fetch = has_topics and handler.api.key == ApiKey.FETCH

        def function(call: Call, request: Any) -> Any:
            began = seconds()
            counts[name, call.version] += 1
            # A short request's records are views, which are invalid when the response comes later; a long request has a
            # copy.
            taken = _taken(request) if is_produce and not call.is_long else None

            def finished(reply: Any) -> None:
                durations.add((seconds() - began) * 1000)
                if isinstance(reply, KafkaError):
                    self.errors[name, reply.code.name] += 1
                    return
                if getattr(reply, "error_code", 0):
                    self.errors[name, _name_of(reply.error_code)] += 1
                if is_produce:
                    if taken is None:
                        _run_in_turns(call, self._produced_long(call, request, reply))
                    else:
                        self._failed("Produce", getattr(reply, "responses", ()), "partition_responses", taken)
                        self._written(taken.values())
                elif is_fetch:
                    is_replica = replica_id(request) >= 0
                    if call.is_long:
                        _run_in_turns(call, self._fetched_long(call, reply, is_replica=is_replica))
                    else:
                        for topic in reply.responses:
                            self._fetched(call, topic, topic.partitions, is_replica=is_replica)

            return reported(inner, call, request, finished)

        return Handler(handler.api, function, handler.error_response)

    def keep(self, topics: Mapping[str, object]) -> None:
        """Drop the counters of deleted topics."""
        for counter in (self.messages_in, self.bytes_in, self.bytes_out):
            counter.keep(topics)

    def _failed(self, name: str, topics: Iterable[Any], attribute: str, taken: dict[_Key, _Batch]) -> None:
        """Count the errors of partitions, and remove them from `taken`."""
        for topic in topics:
            for each in getattr(topic, attribute):
                if each.error_code:
                    self.errors[name, _name_of(each.error_code)] += 1
                    taken.pop((topic.name, topic.topic_id, each.index), None)

    def _written(self, batches: Iterable[_Batch]) -> None:
        for name, topic_id, size, count in batches:
            known = name or self._topic_name(topic_id)
            if known is not None:
                self.bytes_in[known] += size
                self.messages_in[known] += count

    def _produced_long(self, call: Call, request: ProduceRequest, reply: Any) -> Generator[None, None, None]:
        failed = set()
        # With acks=0 there is no response to tell what failed.
        for topic in getattr(reply, "responses", ()):
            for piece in _pieces(topic.partition_responses):
                for part in piece:
                    if part.error_code:
                        self.errors["Produce", _name_of(part.error_code)] += 1
                        failed.add((topic.name, topic.topic_id, part.index))
                yield
        for asked in request.topic_data:
            for piece in _pieces(asked.partition_data):
                data = TopicProduceData(name=asked.name, topic_id=asked.topic_id, partition_data=piece)
                taken = _taken(ProduceRequest(topic_data=[data]))
                self._written(batch for key, batch in taken.items() if key not in failed)
                yield

    def _fetched(self, call: Call, topic: Any, partitions: Iterable[Any], *, is_replica: bool) -> None:
        size = 0
        for partition in partitions:
            if partition.error_code:
                self.errors["Fetch", _name_of(partition.error_code)] += 1
            elif partition.records:
                size += len(partition.records)
        if size and is_replica:
            self.replication_bytes_out += size
        elif size:
            known = self._topic_name(topic.topic_id) if call.version >= _BY_ID_SINCE else topic.topic
            if known is not None:
                self.bytes_out[known] += size

    def _fetched_long(self, call: Call, reply: FetchResponse, *, is_replica: bool) -> Generator[None, None, None]:
        for topic in reply.responses:
            for piece in _pieces(topic.partitions):
                self._fetched(call, topic, piece, is_replica=is_replica)
                yield


#: (topic, topic id, partition index); the topic is empty if the request has only its id.
_Key = tuple[str, Uuid, int]
#: (topic, topic id, bytes, records) of a batch to be written.
_Batch = tuple[str, Uuid, int, int]


def _taken(request: ProduceRequest) -> dict[_Key, _Batch]:
    batches: dict[_Key, _Batch] = {}
    for topic in request.topic_data:
        name, topic_id = topic.name, topic.topic_id
        for each in topic.partition_data:
            records = each.records
            if records is not None and len(records) >= HEADER_BYTES:
                batches[name, topic_id, each.index] = (
                    name,
                    topic_id,
                    len(records),
                    _COUNT.unpack_from(records, _COUNT_AT)[0],
                )
    return batches


def _pieces(partitions: list[Any]) -> Iterator[list[Any]]:
    return (
        partitions[first : first + _PARTITIONS_PER_STEP] for first in range(0, len(partitions), _PARTITIONS_PER_STEP)
    )


def _run_in_turns(call: Call, steps: Generator[None, None, None]) -> None:
    """Run `steps` one per turn, so that the loop serves others."""

    def step() -> None:
        if next(steps, steps) is not steps:
            call.connection.turns.wait(step)

    call.connection.turns.wait(step)


def _name_of(code: int) -> str:
    return ErrorCode(code).name
