"""The node's spans of traced records, sent as OTLP over HTTP: `tracing.otlp.url`.

    append orders    SERVER: from the arrival of a batch at its handler to the answer, as acks asks
    fetch orders     SERVER: from the moment the records are found to the moment the socket has taken the response

Rules:
- A span's parent is the `traceparent` of the first sampled record of the batch (`trace_context` has the bounds), so it
  is in the trace of the producer and of the consumer. The records are not changed.
- A node without the setting has bare handlers and no spans. Followers' fetches make none.
- A span is encoded on the loop, a fixed amount of work; the thread only joins and sends.
- Names and attributes follow OpenTelemetry's semantic conventions for messaging. Field numbers are those of
  opentelemetry-proto's trace.proto 1.3.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from time import time_ns
from typing import TYPE_CHECKING, Any

from ottla.broker.call.handler import Call, Handler
from ottla.broker.call.reply import reported
from ottla.broker.observe.otlp import encode_field, encode_number
from ottla.broker.observe.otlp_sender import OtlpSender
from ottla.broker.observe.trace_context import LOOKS_MAX, TracedBatch, traced_batches
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.topic_name import NAME_LENGTH_MAX
from ottla.raft.message import replica_id
from ottla.settings.server.own import OwnSettings
from ottla.wire.api import ApiKey

if TYPE_CHECKING:
    from ottla.net.inbound import Slot

#: A request's topics and partitions behind these are not looked at.
_PARTS_MAX = 200
_TEXT_MAX = 80
_KIND_SERVER = encode_number(6, 2)
_STATUS_ERROR = encode_field(15, encode_number(3, 2))
_START_AND_END = struct.Struct("<BQBQ")
_START, _END = 7 << 3 | 1, 8 << 3 | 1

#: (topic as the request names it, partition, a batch for it).
_Taken = tuple[str | bytes, int, TracedBatch]


class Spans(OtlpSender[bytes]):
    """The spans of one node."""

    setting = OwnSettings.tracing_otlp_url.name
    path = "/v1/traces"
    items = "spans"
    metric = "ottla_spans_otlp"
    counted = "Spans of this node"
    at_once = 1000
    gather_seconds = 1.0

    def __init__(self, url: str, resource: Callable[[], dict[str, str]], random_bytes: Callable[[int], bytes]) -> None:
        """Begin. `resource` has the attributes of this node, as of the first request. OttlaError for an invalid URL."""
        self._resource = resource
        self._random_bytes = random_bytes
        super().__init__(url)

    def body(self, taken: list[bytes]) -> bytes:
        """An ExportTraceServiceRequest with these spans."""
        resource = b"".join(_attribute(name, value) for name, value in self._resource().items())
        scope = encode_field(1, encode_field(1, b"ottla"))
        spans = b"".join(encode_field(2, span) for span in taken)
        return encode_field(1, encode_field(1, resource) + encode_field(2, scope + spans))

    def around(self, handler: Handler) -> Handler:
        """The handler of Produce with spans; every other handler as it is."""
        if handler.api.key != ApiKey.PRODUCE:
            return handler
        inner = handler.function

        def function(call: Call, request: Any) -> Any:
            began_ns = time_ns()
            # Now, because the records of a short request are views that are invalid when the response comes later.
            taken = list(_taken(request.topic_data, "partition_data", "index", "name"))
            if not taken:
                return inner(call, request)

            def answered(reply: Any) -> None:
                self._appended(call, taken, began_ns, reply)

            return reported(inner, call, request, answered)

        return Handler(handler.api, function, handler.error_response)

    def answered(self, call: Call, handler: Handler, request: Any, reply: Any, slot: Slot) -> None:
        """Make the spans of a fetch whose response goes into `slot`, when it is sent."""
        if handler.api.key == ApiKey.FETCH:
            if replica_id(request) >= 0:
                return
        elif handler.api.key != ApiKey.SHARE_FETCH:
            return
        began_ns = time_ns()
        try:
            taken = list(_taken(getattr(reply, "responses", ()), "partitions", "partition_index", "topic"))
        except OSError:
            # The response will fail for the same reason, and says so.
            return
        if not taken:
            return
        before = slot.on_queued

        def sent() -> None:
            for topic, index, batch in taken:
                self._add("fetch", call, topic, index, batch, began_ns, None)

        def queued() -> None:
            if before is not None:
                before()
            call.connection.when_sent(sent)

        slot.on_queued = queued

    def _appended(self, call: Call, taken: list[_Taken], began_ns: int, reply: Any) -> None:
        parts = {
            (topic.name or topic.topic_id, part.index): part
            for topic, part in _parts(getattr(reply, "responses", ()), "partition_responses")
        }
        for topic, index, batch in taken:
            # Without acks there is no response; the base offset in the batch is not that of the log.
            error, offset = ErrorCode.NONE, -1
            if isinstance(reply, KafkaError):
                error = reply.code
            elif (topic, index) in parts:
                part = parts[topic, index]
                error, offset = ErrorCode(part.error_code), part.base_offset
            self._add("append", call, topic, index, batch._replace(base_offset=offset), began_ns, error)

    def _add(
        self,
        name: str,
        call: Call,
        topic: str | bytes,
        index: int,
        batch: TracedBatch,
        began_ns: int,
        error: ErrorCode | None,
    ) -> None:
        """Encode and queue a span that ends now."""
        # A topic that is not there has the name that the client gave it, or none.
        known = topic if isinstance(topic, str) else call.node.topic_name(topic) or ""
        known = known[:NAME_LENGTH_MAX]
        attributes: dict[str, str | int] = {
            "messaging.system": "kafka",
            "messaging.destination.name": known,
            "messaging.operation.name": name,
            "messaging.destination.partition.id": str(index),
            "messaging.batch.message_count": max(0, batch.record_count),
            "messaging.client.id": call.client_id[:_TEXT_MAX],
            "client.address": call.client_address,
        }
        if batch.base_offset >= 0:
            attributes["messaging.kafka.offset"] = batch.base_offset
        if error:
            attributes["error.type"] = error.name
        span = b"".join(
            (
                encode_field(1, batch.trace_id),
                encode_field(2, self._random_bytes(8)),
                encode_field(4, batch.parent_id),
                encode_field(5, f"{name} {known}".encode()),
                _KIND_SERVER,
                _START_AND_END.pack(_START, began_ns, _END, max(began_ns, time_ns())),
                *(encode_field(9, _pair(key, value)) for key, value in attributes.items()),
                _STATUS_ERROR if error else b"",
            )
        )
        self.put(span, len(span))


def _taken(topics: Iterable[Any], parts: str, index: str, name: str) -> Iterator[_Taken]:
    looks = [LOOKS_MAX]
    for topic, part in _parts(topics, parts):
        for batch in traced_batches(part.records, looks):
            yield getattr(topic, name, "") or topic.topic_id, getattr(part, index), batch
        if looks[0] <= 0:
            return


def _parts(topics: Iterable[Any], parts: str) -> Iterator[tuple[Any, Any]]:
    """(topic, partition) of a request or response, as many as are looked at."""
    pairs = ((topic, part) for topic in islice(topics, _PARTS_MAX) for part in getattr(topic, parts))
    return islice(pairs, _PARTS_MAX)


def _attribute(name: str, value: str | int) -> bytes:
    return encode_field(1, _pair(name, value))


def _pair(name: str, value: str | int) -> bytes:
    kind = encode_field(1, value.encode()) if isinstance(value, str) else encode_number(3, value)
    return encode_field(1, name.encode()) + encode_field(2, kind)
