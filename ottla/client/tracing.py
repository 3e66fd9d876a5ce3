"""OpenTelemetry tracing (`tracing.enable=true`): producer and consumer spans, and `traceparent` headers.

Rules:
- Only opentelemetry-api is imported (the extra ottla[otel]), and only when a client enables tracing. The program
  configures where spans go; without an SDK they go nowhere, and headers are passed on unchanged.
- The headers are W3C Trace Context: `traceparent`, and `tracestate` if present. A record has at most one of each: the
  producer replaces those that the program gave, and uses them as the parent when the program has no open span.
- Names and attributes follow OpenTelemetry's semantic conventions for messaging and Kafka.
- Rows of `send_table` and `poll_table` have no spans; their headers are passed on unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ottla.kernel.error import OttlaError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span

    from ottla.client.acknowledgement import ShareRecord
    from ottla.client.producer.delivery import Delivery
    from ottla.columns.record import ConsumerRecord
    from ottla.wire.batch import Header

_PARENT, _STATE = "traceparent", "tracestate"
_OURS = (_PARENT, _STATE)
_Append = Callable[..., "Delivery | None"]

try:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError as missing:
    raise OttlaError("tracing.enable needs opentelemetry-api: pip install 'ottla[otel]'") from missing

_propagator = TraceContextTextMapPropagator()


class ProducerTracing:
    """The PRODUCER spans of one producer: each lasts from appending the record to the broker's answer."""

    def __init__(self, client_id: str, append: _Append) -> None:
        self._tracer = trace.get_tracer("ottla")
        self._client_id = client_id
        self._append = append

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        pairs: Sequence[Header] | None,
        timestamp: int | None,
    ) -> Delivery | None:
        """`Accumulator.append` with the span's headers added. A record that finds no room ends no span."""
        context = None if trace.get_current_span().get_span_context().is_valid else _context_of(pairs or ())
        kind = trace.SpanKind.PRODUCER
        span = self._tracer.start_span(f"send {topic}", context, kind, _attributes(topic, "send", self._client_id))
        carrier: dict[str, str] = {}
        _propagator.inject(carrier, trace.set_span_in_context(span))
        if carrier:
            pairs = [pair for pair in pairs or () if pair[0] not in _OURS]
            pairs += [(name, content.encode()) for name, content in carrier.items()]
        delivery = self._append(topic, value, key, partition, pairs, timestamp)
        if delivery is not None and span.is_recording():
            if key is not None and value is None:
                span.set_attribute("messaging.kafka.message.tombstone", True)
            delivery.batch.when_done(lambda: _end(span, delivery))
        return delivery


def _end(span: Span, delivery: Delivery) -> None:
    # Not `Delivery.result`: that would count as the program having looked at the outcome.
    batch, index = delivery._locate()
    span.set_attribute("messaging.destination.partition.id", str(batch.partition))
    if batch.error is not None:
        span.set_attribute("error.type", batch.error.code.name)
        span.set_status(trace.StatusCode.ERROR, str(batch.error))
    elif batch.offset >= 0:
        span.set_attribute("messaging.kafka.offset", batch.offset + index)
    span.end()


class ConsumerTracing:
    """The CONSUMER spans of one consumer: one for each record with a `traceparent`, when a poll returns it."""

    def __init__(self, client_id: str, group_id: str | None) -> None:
        self._tracer = trace.get_tracer("ottla")
        self._client_id = client_id
        self._group_id = group_id

    def received(self, records: Iterable[ConsumerRecord] | Iterable[ShareRecord]) -> None:
        """Make a span for each traced record, in its producer's trace and linked to the producer's span."""
        for record in records:
            span = _consumer_span(self._tracer, record, "poll", "receive", self._client_id, self._group_id)
            if span is not None:
                span.end()


@contextmanager
def processing(
    record: ConsumerRecord[Any, Any] | ShareRecord[Any, Any], *, group_id: str | None = None
) -> Iterator[None]:
    """Context manager: a CONSUMER span "process <topic>", in the record's trace, current inside the block.

    Records that a traced producer sends inside the block continue the trace. A record without `traceparent` gets no
    span. An exception is recorded in the span and raised again. `group_id` becomes a span attribute.
    """
    span = _consumer_span(trace.get_tracer("ottla"), record, "process", "process", None, group_id)
    if span is None:
        yield
        return
    with trace.use_span(span, end_on_exit=True):
        yield


def _consumer_span(
    tracer: trace.Tracer,
    record: ConsumerRecord | ShareRecord,
    name: str,
    kind: str,
    client_id: str | None,
    group_id: str | None,
) -> Span | None:
    context = _context_of(record.headers)
    if context is None:
        return None
    attributes = _attributes(record.topic, name, client_id, kind)
    attributes["messaging.destination.partition.id"] = str(record.partition)
    attributes["messaging.kafka.offset"] = record.offset
    if group_id is not None:
        attributes["messaging.consumer.group.name"] = group_id
    link = trace.Link(trace.get_current_span(context).get_span_context())
    return tracer.start_span(f"{name} {record.topic}", context, trace.SpanKind.CONSUMER, attributes, [link])


def _context_of(pairs: Iterable[Header]) -> Context | None:
    """The trace context in these headers; None without a valid `traceparent`."""
    carrier = {
        name: content.decode("latin-1") for name, content in pairs if name in _OURS and isinstance(content, bytes)
    }
    if _PARENT not in carrier:
        return None
    context = _propagator.extract(carrier)
    return context if trace.get_current_span(context).get_span_context().is_valid else None


def _attributes(topic: str, name: str, client_id: str | None, kind: str | None = None) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {
        "messaging.system": "kafka",
        "messaging.destination.name": topic,
        "messaging.operation.name": name,
        "messaging.operation.type": kind or name,
    }
    if client_id is not None:
        attributes["messaging.client.id"] = client_id
    return attributes
