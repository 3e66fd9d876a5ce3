"""Traces: spans of the client's producers and consumers, and the headers between them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import ottla
from ottla.client import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    ConfigResource,
    Consumer,
    KafkaError,
    NewTopic,
    OttlaError,
    Producer,
    ResourceType,
    ShareConsumer,
)
from ottla.client.tracing import processing
from tests.client.conftest import eventually

_exporter = InMemorySpanExporter()
#: 32 hex digits of a trace, 16 of a span.
FOREIGN = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")


@pytest.fixture(scope="module")
def node() -> Iterator[str]:
    with ottla.Node() as one:
        yield one.bootstrap_servers


@pytest.fixture(scope="module", autouse=True)
def provider() -> TracerProvider:
    # The API takes a provider once a process.
    found = trace.get_tracer_provider()
    if not isinstance(found, TracerProvider):
        found = TracerProvider()
        trace.set_tracer_provider(found)
    found.add_span_processor(SimpleSpanProcessor(_exporter))
    return found


@pytest.fixture(autouse=True)
def empty() -> None:
    _exporter.clear()


def spans(kind: SpanKind) -> list[ReadableSpan]:
    return [span for span in _exporter.get_finished_spans() if span.kind is kind]


def trace_id(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


def span_id(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.span_id:016x}"


def parent_id(span: ReadableSpan) -> str:
    return "" if span.parent is None else f"{span.parent.span_id:016x}"


def test_one_trace_from_produce_to_consume(node: str) -> None:
    with Producer(node, tracing_enable=True, client_id="billing") as producer:
        for key in (None, b"k"):
            producer.send("one", b"v", key, headers=[("own", b"1"), ("traceparent", b"nonsense")]).result(30)
    with Consumer(
        node, tracing_enable=True, group_id="readers", client_id="reader", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(["one"])
        records = list(islice(consumer, 2))
    sent, received = spans(SpanKind.PRODUCER), spans(SpanKind.CONSUMER)
    assert [span.name for span in sent] == ["send one"] * 2
    assert [span.name for span in received] == ["poll one"] * 2
    assert [trace_id(span) for span in sent] == [trace_id(span) for span in received]
    for number, (one, other, record) in enumerate(zip(sent, received, records, strict=True)):
        assert [name for name, _ in record.headers] == ["own", "traceparent"]
        assert record.headers[1][1] == f"00-{trace_id(one)}-{span_id(one)}-{one.context.trace_flags:02x}".encode()
        assert parent_id(other) == span_id(one)
        assert [f"{link.context.span_id:016x}" for link in other.links] == [span_id(one)]
        place = {"messaging.destination.partition.id": "0", "messaging.kafka.offset": number}
        common = {"messaging.system": "kafka", "messaging.destination.name": "one"} | place
        sending = {"messaging.operation.name": "send", "messaging.operation.type": "send"}
        assert dict(one.attributes or {}) == common | sending | {"messaging.client.id": "billing"}
        polling = {"messaging.operation.name": "poll", "messaging.operation.type": "receive"}
        reader = {"messaging.client.id": "reader", "messaging.consumer.group.name": "readers"}
        assert dict(other.attributes or {}) == common | polling | reader


def test_a_record_continues_the_trace_of_the_program_else_of_its_headers(node: str) -> None:
    tracer = trace.get_tracer("program")
    given = [("traceparent", f"00-{FOREIGN[0]}-{FOREIGN[1]}-01"), ("tracestate", "vendor=1")]
    with Producer(node, tracing_enable=True) as producer:
        producer.send("parents", b"v", headers=given).result(30)
        with tracer.start_as_current_span("work") as work:
            producer.send("parents", b"v", headers=given).result(30)
    by_headers, by_program = spans(SpanKind.PRODUCER)
    assert (trace_id(by_headers), parent_id(by_headers)) == FOREIGN
    assert parent_id(by_program) == f"{work.get_span_context().span_id:016x}"
    with Consumer(node) as consumer:
        consumer.assign([ottla.client.TopicPartition("parents", 0)])
        consumer.seek_to_beginning()
        records = list(islice(consumer, 2))
    assert [dict(record.headers).get("tracestate") for record in records] == [b"vendor=1", None]
    assert not spans(SpanKind.CONSUMER)


def test_the_work_on_a_record_is_a_span_and_what_it_sends_goes_on(node: str) -> None:
    with (
        Producer(node, tracing_enable=True) as producer,
        Consumer(node, auto_offset_reset="earliest", group_id="workers") as consumer,
    ):
        producer.send("in", b"v").result(30)
        consumer.subscribe(["in"])
        record = next(iter(consumer))
        with processing(record, group_id="workers"):
            producer.send("out", b"v").result(30)
        with pytest.raises(ZeroDivisionError), processing(record):
            _ = 1 // 0
        with processing(record._replace(headers=())):
            pass
    first, second = spans(SpanKind.PRODUCER)
    worked, failed = spans(SpanKind.CONSUMER)
    assert (worked.name, parent_id(worked), parent_id(second)) == ("process in", span_id(first), span_id(worked))
    assert len({trace_id(span) for span in (first, second, worked, failed)}) == 1
    assert (failed.status.status_code, failed.events[0].name) == (StatusCode.ERROR, "exception")


def test_a_span_tells_of_a_record_that_fails_and_flush_raises_all_the_same(node: str) -> None:
    with Admin(node) as admin:
        admin.create_topics([NewTopic("small", configs={"max.message.bytes": "200"})]).check()
    producer: Producer[bytes, bytes] = Producer(node, tracing_enable=True)
    producer.send("small", b"x" * 500)
    with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
        producer.flush()
    producer.close()
    (span,) = spans(SpanKind.PRODUCER)
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "MESSAGE_TOO_LARGE"


def test_the_asynchronous_clients_and_share_consumers_do_the_same(node: str) -> None:
    async def main() -> None:
        async with AsyncProducer(node, tracing_enable=True, transactional_id="t") as producer, producer.transaction():
            await (await producer.send("async", b"v"))
        async with AsyncConsumer(node, tracing_enable=True, auto_offset_reset="earliest", group_id="a") as consumer:
            consumer.subscribe(["async"])
            async for _ in consumer:
                break

    asyncio.run(main())
    with Admin(node) as admin:
        admin.alter_configs({ConfigResource(ResourceType.GROUP, "s"): {"share.auto.offset.reset": "earliest"}}).check()
    with ShareConsumer(node, tracing_enable=True, group_id="s") as sharing:
        sharing.subscribe("async")
        eventually(lambda: bool(sharing.poll(0.2)))
    (sent,) = spans(SpanKind.PRODUCER)
    received = spans(SpanKind.CONSUMER)
    assert [trace_id(span) for span in received] == [trace_id(sent)] * 2


@pytest.mark.parametrize(("client", "more"), [(Producer, {}), (Consumer, {}), (ShareConsumer, {"group.id": "g"})])
def test_without_the_extra_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, client: Any, more: dict[str, str]
) -> None:
    monkeypatch.delitem(sys.modules, "ottla.client.tracing")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(OttlaError, match=r"^tracing.enable needs .*pip install 'ottla\[otel\]'$"):
        client({"bootstrap.servers": "127.0.0.1:1", **more, "tracing.enable": True})
    client({"bootstrap.servers": "127.0.0.1:1", **more}).close()
