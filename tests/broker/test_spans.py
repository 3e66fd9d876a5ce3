"""A node's spans: in the trace of producer and consumer, none for followers, bounded, and never by hostile text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import islice

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ottla
from ottla.broker.observe.spans import Spans
from ottla.broker.observe.trace_context import LOOKS_MAX, traced_batches
from ottla.client import Admin, ConfigResource, Consumer, NewTopic, Producer, ResourceType, ShareConsumer
from ottla.kernel.error import KafkaError, OttlaError
from ottla.kernel.ports import Buffer
from ottla.wire.batch import Header, build
from ottla.wire.codec import Codec
from tests.broker.test_observe import scraped, value
from tests.broker.test_otlp_export import Receiver, receiving
from tests.client.conftest import eventually

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{PARENT}-01"
HEADERS: list[tuple[str, bytes]] = [("own", b"1"), ("traceparent", SAMPLED.encode())]


class SpanReceiver:
    """The spans that a node's OTLP requests carry, in the order in which they come."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._left: list[dict[str, str]] = []

    def next(self) -> dict[str, str]:
        while not self._left:
            path, _, body = self._receiver.posted.get(timeout=30)
            assert path == "/v1/traces"
            self._left = list(_spans(body))
        return self._left.pop(0)


def _spans(body: bytes) -> Iterator[dict[str, str]]:
    for resource_spans in fields(body)[1]:
        (resource,), (scope_spans,) = fields(resource_spans)[1], fields(resource_spans)[2]
        described = dict(_attribute(each) for each in fields(resource)[1])
        for data in fields(scope_spans)[2]:
            span = fields(data)
            assert len(span[2][0]) == 8
            assert 0 < int.from_bytes(span[7][0], "little") <= int.from_bytes(span[8][0], "little")
            ids = {"trace": span[1][0].hex(), "parent": span[4][0].hex()}
            status = {"status": fields(span[15][0])[3][0].decode()} if 15 in span else {}
            yield {**described, **dict(map(_attribute, span[9])), **ids, **status, "name": span[5][0].decode()}


def fields(data: bytes) -> dict[int, list[bytes]]:
    """The fields of a protobuf message: the bytes of each; of a number, its text."""
    found: dict[int, list[bytes]] = defaultdict(list)
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        kind, size = tag & 7, 8
        if kind == 0:
            number, position = _varint(data, position)
            found[tag >> 3].append(str(number).encode())
            continue
        if kind == 2:
            size, position = _varint(data, position)
        else:
            assert kind == 1
        found[tag >> 3].append(data[position : position + size])
        position += size
    assert position == len(data)
    return found


def _varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (data[position] & 127) << shift
        shift, position = shift + 7, position + 1
        if data[position - 1] < 128:
            return number, position


def _attribute(data: bytes) -> tuple[str, str]:
    parts = fields(data)
    content = fields(parts[2][0])
    return parts[1][0].decode(), content[1 if 1 in content else 3][0].decode()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as one:
        yield one


@pytest.fixture
def spans(receiver: Receiver) -> SpanReceiver:
    return SpanReceiver(receiver)


def settings(receiver: Receiver) -> dict[str, str]:
    return {"tracing.otlp.url": receiver.url.replace("metrics", "traces")}


def common(topic: str, operation: str, **more: str) -> dict[str, str]:
    return {
        "service.name": "ottla",
        "service.instance.id": "1",
        "messaging.system": "kafka",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": "0",
        "messaging.operation.name": operation,
        "messaging.batch.message_count": "1",
        "client.address": "127.0.0.1",
        "name": f"{operation} {topic}",
        "trace": TRACE,
        "parent": PARENT,
        **more,
    }


def without_cluster(span: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in span.items() if name != "kafka.cluster.id"}


def read(bootstrap: str, topic: str, count: int, *, traced: bool = False) -> None:
    given = {"group.id": "g", "client.id": "reader", "auto.offset.reset": "earliest", "tracing.enable": traced}
    with Consumer({"bootstrap.servers": bootstrap, **given}) as consumer:
        consumer.subscribe([topic])
        assert len(list(islice(consumer, count))) == count


def test_one_trace_leads_from_the_producer_through_the_broker_to_the_consumer(
    receiver: Receiver, spans: SpanReceiver
) -> None:
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        trace.set_tracer_provider(provider := TracerProvider())
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with ottla.Node(settings=settings(receiver)) as node:
        with Producer(node.bootstrap_servers, tracing_enable=True, compression_type="zstd") as producer:
            producer.send("orders", b"v").result(30)
        read(node.bootstrap_servers, "orders", 1, traced=True)
        appended, fetched = spans.next(), spans.next()
    sent, received = exporter.get_finished_spans()
    assert sent.context is not None
    assert received.context is not None
    traced = {f"{sent.context.trace_id:032x}", f"{received.context.trace_id:032x}", appended["trace"], fetched["trace"]}
    assert len(traced) == 1
    assert {appended["parent"], fetched["parent"]} == {f"{sent.context.span_id:016x}"}
    assert received.parent is not None
    assert received.parent.span_id == sent.context.span_id
    assert [appended["name"], fetched["name"]] == ["append orders", "fetch orders"]


def test_a_span_says_which_batch_of_which_client_it_is_about(receiver: Receiver, spans: SpanReceiver) -> None:
    more = {"metrics.listener": "127.0.0.1:0"}
    with ottla.Node(settings={**settings(receiver), **more}) as node:
        with Producer(node.bootstrap_servers, client_id="billing") as producer:
            producer.send("told", b"no trace").result(30)
            producer.send("told", b"v", headers=HEADERS).result(30)
        read(node.bootstrap_servers, "told", 2)
        offset = {"messaging.kafka.offset": "1"}
        appended = spans.next()
        assert len(appended["kafka.cluster.id"]) == 22
        assert without_cluster(appended) == common("told", "append", **{"messaging.client.id": "billing"}, **offset)
        assert without_cluster(spans.next()) == common("told", "fetch", **{"messaging.client.id": "reader"}, **offset)
        eventually(lambda: value(scraped(node), "ottla_spans_otlp_sent_total") == 2)


def test_a_refused_batch_has_a_span_with_the_error(receiver: Receiver, spans: SpanReceiver) -> None:
    with ottla.Node(settings=settings(receiver)) as node:
        with Admin(node.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("small", configs={"max.message.bytes": "200"})]).check()
        with Producer(node.bootstrap_servers) as producer, pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            producer.send("small", b"x" * 500, headers=HEADERS).result(30)
        span = spans.next()
    assert (span["error.type"], span["status"], span["name"]) == ("MESSAGE_TOO_LARGE", "2", "append small")
    assert "messaging.kafka.offset" not in span


def test_without_acks_and_to_share_groups_spans_are_made_too(receiver: Receiver, spans: SpanReceiver) -> None:
    with ottla.Node(settings=settings(receiver)) as node:
        with Admin(node.bootstrap_servers) as admin:
            group = ConfigResource(ResourceType.GROUP, "s")
            admin.alter_configs({group: {"share.auto.offset.reset": "earliest"}}).check()
        with Producer(node.bootstrap_servers, acks=0, enable_idempotence=False) as producer:
            producer.send("shared", b"v", headers=HEADERS)
        with ShareConsumer(node.bootstrap_servers, group_id="s", client_id="reader") as sharing:
            sharing.subscribe("shared")
            eventually(lambda: bool(sharing.poll(0.2)))
        appended, fetched = spans.next(), spans.next()
    assert "messaging.kafka.offset" not in appended
    more = {"messaging.client.id": "reader", "messaging.kafka.offset": "0"}
    assert without_cluster(fetched) == common("shared", "fetch", **more)


@pytest.mark.timeout(120)
def test_followers_make_no_spans(receiver: Receiver, spans: SpanReceiver) -> None:
    with ottla.Cluster(nodes=3, settings=settings(receiver)) as cluster:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("copied", 1, 3)]).check()
        with Producer(cluster.bootstrap_servers) as producer:
            for _ in range(3):
                # Acknowledged by all: the followers have fetched it.
                producer.send("copied", b"v", headers=HEADERS).result(30)
        read(cluster.bootstrap_servers, "copied", 3)
        # The leader sends its spans in order, so those of its followers would come before the consumer's.
        names = [spans.next()["name"] for _ in range(4)]
    assert names == ["append copied"] * 3 + ["fetch copied"]


def test_spans_that_a_receiver_refuses_are_dropped_and_counted(receiver: Receiver) -> None:
    receiver.status = 503
    exporter = Spans(receiver.url, dict, bytes)
    exporter.put(b"", 0)
    eventually(lambda: exporter.dropped["refused"] == 1)
    assert 'ottla_spans_otlp_dropped_total{reason="refused"} 1' in exporter.lines()
    exporter.close()


def looked_at(records: Buffer, looks: int = LOOKS_MAX) -> list[tuple[str, str, int]]:
    return [(one.trace_id.hex(), one.parent_id.hex(), one.base_offset) for one in traced_batches(records, [looks])]


def batch(*headers: Header, value: bytes = b"v", offset: int = 0, codec: Codec = Codec.NONE) -> bytes:
    return build([(1, None, value, headers)], base_offset=offset, codec=codec)


@pytest.mark.parametrize("codec", Codec)
def test_the_first_sampled_record_in_the_head_of_a_batch_counts(codec: Codec) -> None:
    not_sampled = ("traceparent", f"00-{'1' * 32}-{'2' * 16}-00".encode())
    records = [(1, b"k", b"v", [one]) for one in (("own", b"1"), not_sampled, HEADERS[1])]
    assert looked_at(build(records, base_offset=7, codec=codec)) == [(TRACE, PARENT, 7)]
    large = 200_000 * b"v" if codec is Codec.NONE else bytes(range(256)) * 800
    assert looked_at(batch(HEADERS[1], value=large, codec=codec)) == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nonsense",
        f"ff-{TRACE}-{PARENT}-01".encode(),
        f"00-{'0' * 32}-{PARENT}-01".encode(),
        f"00-{TRACE}-{'0' * 16}-01".encode(),
        f"00-{TRACE.upper()}-{PARENT}-01".encode(),
        f"00-{TRACE}-{PARENT}-00".encode(),
        f"{SAMPLED}-more".encode(),
        SAMPLED.encode()[:-1],
        SAMPLED.encode() + b"\n",
        b"\xff" * 55,
        None,
    ],
)
def test_any_other_text_is_no_trace(content: bytes | None) -> None:
    assert looked_at(batch(("traceparent", content))) == []


def test_damaged_and_hostile_batches_are_no_traces() -> None:
    good = batch(HEADERS[1])
    assert looked_at(good[:40]) == []
    assert looked_at(good[:-1]) == []
    assert looked_at(good[:8] + b"\xff\xff\xff\xff" + good[12:]) == []
    assert looked_at(good[:8] + b"\0\0\0\0" + good[12:]) == []
    assert looked_at(good[:16] + b"\1" + good[17:]) == []
    for attributes in range(1, 8):
        assert looked_at(good[:22] + bytes((attributes,)) + good[23:]) == []


def test_one_request_costs_a_bounded_number_of_looks() -> None:
    assert len(looked_at(batch(HEADERS[1]) * 100)) == LOOKS_MAX
    assert len(looked_at(batch(HEADERS[1], codec=Codec.GZIP) * 100)) == LOOKS_MAX // 4


@pytest.mark.parametrize("url", ["collector:4318", "ftp://collector/", "http://ann:secret@collector/v1/traces"])
def test_an_address_that_is_none_is_refused_at_the_start(url: str) -> None:
    with (
        pytest.raises(OttlaError, match=r"tracing.otlp.url( has a user or password|: expected http.*/v1/traces)") as no,
        ottla.Node(settings={"tracing.otlp.url": url}),
    ):
        pass
    assert "secret" not in str(no.value)
