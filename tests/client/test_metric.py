"""What clients measure of themselves."""

import contextlib
import math

import pyarrow
import pytest

from ottla.client import Admin, ConfigResource, Consumer, KafkaError, Producer, ResourceType, TopicPartition
from ottla.client.connection.metric import WINDOW_MS, Sampled
from tests.client.conftest import eventually


def test_rates_are_of_the_last_windows_and_totals_of_all_time() -> None:
    sampled = Sampled(0)
    sampled.record(100, 10_000)
    sampled.record(300, 20_000)
    assert (sampled.rate(20_000), sampled.frequency(20_000)) == (20, 0.1)
    assert (sampled.mean(20_000), sampled.greatest(20_000)) == (200, 300)
    sampled.record(50, WINDOW_MS + 1_000)
    assert (sampled.mean(WINDOW_MS + 1_000), sampled.greatest(WINDOW_MS + 1_000)) == (150, 300)
    much_later = 10 * WINDOW_MS
    assert (sampled.rate(much_later), sampled.total, sampled.count) == (0, 450, 3)
    assert math.isnan(sampled.mean(much_later))
    assert math.isnan(sampled.greatest(much_later))


def test_the_last_window_counts_until_it_is_two_windows_old() -> None:
    sampled = Sampled(0)
    sampled.record(9, 1_000)
    sampled.record(1, WINDOW_MS + 500)
    assert sampled.greatest(2 * WINDOW_MS - 1) == 9
    sampled.record(1, 2 * WINDOW_MS + 600)
    assert sampled.greatest(2 * WINDOW_MS + 600) == 1


def test_a_producer_tells_what_it_has_sent(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, buffer_memory=1_000_000) as producer:
        assert producer.metrics().record_send_total == 0
        for _ in range(100):
            producer.send(topic, b"v" * 100)
        producer.flush()
        metrics = producer.metrics()
        assert metrics.record_send_total - metrics.record_retry_total == 100
        assert metrics.outgoing_byte_total > 10_000
        assert metrics.batch_size_max >= metrics.batch_size_avg > 100
        assert metrics.request_latency_avg >= 0
        assert metrics.request_total > 0
        assert (metrics.record_error_total, metrics.requests_in_flight) == (0, 0)
        assert (metrics.buffer_total_bytes, metrics.buffer_available_bytes) == (1_000_000, 1_000_000)
        assert metrics.named()["record-send-rate"] == pytest.approx(metrics.record_send_rate)
        of_topic = metrics.topics[topic]
        assert (of_topic.record_send_total, of_topic.byte_total) == (
            metrics.record_send_total,
            metrics.outgoing_byte_total,
        )
        assert (of_topic.record_error_total, of_topic.named()["record-error-total"]) == (0, 0)
        # Beside Produce there were ApiVersions, Metadata and InitProducerId; metrics may be asked for at any time.
        eventually(lambda: all(one.request_total == one.response_total for one in producer.metrics().nodes.values()))
        (of_node,) = producer.metrics().nodes.values()
        assert of_node.response_total > metrics.request_total
        assert of_node.outgoing_byte_total > metrics.outgoing_byte_total
        assert of_node.request_size_max > of_node.request_size_avg > 0
        assert of_node.request_latency_max >= of_node.request_latency_avg >= 0
        assert of_node.named()["incoming-byte-total"] > 0


def test_a_record_that_is_given_up_is_counted_at_its_topic(bootstrap: str, topic: str, admin: Admin) -> None:
    admin.alter_config(ConfigResource(ResourceType.TOPIC, topic), {"max.message.bytes": "100"})
    with Producer(bootstrap) as producer:

        def refused() -> bool:
            with contextlib.suppress(KafkaError):
                producer.send(topic, b"v" * 1000).result(30)
                return False
            return True

        eventually(refused)
        metrics = producer.metrics()
        assert metrics.topics[topic].record_error_total == metrics.record_error_total >= 1


def test_a_consumer_tells_what_it_has_read_and_what_is_left(bootstrap: str, topic: str, name: str) -> None:
    one = TopicPartition(topic, 0)
    with Producer(bootstrap) as producer:
        for _ in range(100):
            producer.send(topic, b"v" * 100, partition=0)
    with Consumer(bootstrap, group_id=name, auto_offset_reset="earliest", max_poll_records=30) as consumer:
        consumer.assign([one])
        assert math.isnan(consumer.metrics().last_poll_seconds_ago)
        assert len(consumer.poll(30)) == 30
        consumer.commit()
        metrics = consumer.metrics()
        assert metrics.records_consumed_total == 30
        assert metrics.bytes_consumed_total > 10_000
        assert metrics.records_lag == {one: 70}
        of_one = metrics.partitions[one]
        assert (of_one.records_lag, of_one.records_lead, of_one.preferred_read_replica) == (70, 30, -1)
        assert of_one.named()["records-lead"] == metrics.records_lead_min == 30
        of_topic = metrics.topics[topic]
        assert (of_topic.records_consumed_total, of_topic.bytes_consumed_total) == (30, metrics.bytes_consumed_total)
        assert of_topic.fetch_size_max >= of_topic.fetch_size_avg > 0
        assert of_topic.named()["records-consumed-total"] == 30
        (of_node,) = metrics.nodes.values()
        assert of_node.incoming_byte_total > metrics.bytes_consumed_total
        assert (metrics.records_lag_max, metrics.assigned_partitions) == (70, 1)
        assert (metrics.fetch_total > 0, metrics.commit_total) == (True, 1)
        assert metrics.named()["records-lag-max"] == 70
        assert metrics.last_poll_seconds_ago >= 0


def test_a_batch_size_that_is_given_bounds_what_is_sent_of_records_and_tables(bootstrap: str, topic: str) -> None:
    table = pyarrow.table({"value": [b"v" * (10 + number % 90) for number in range(2_000)]})
    for sends_table in (False, True):
        # With time to fill them, batches become as large as they may.
        with Producer(bootstrap, batch_size=8_000, linger_ms=60_000) as producer:
            if sends_table:
                producer.send_table(topic, table)
            else:
                for value in table["value"].to_pylist():
                    producer.send(topic, value)
            producer.flush()
            metrics = producer.metrics()
        assert metrics.record_send_total - metrics.record_retry_total == 2_000
        assert 4_000 < metrics.batch_size_max <= 8_000


def test_a_commit_took_the_time_from_its_beginning_to_its_end(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([1_000_000, 1_000_130])
    with Consumer(bootstrap, group_id=f"{topic}-g", enable_auto_commit=False) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        with monkeypatch.context() as patched:
            patched.setattr("ottla.client.consumer.commit.now_ms", lambda: next(times))
            recorded: list[tuple[int, int]] = []
            patched.setattr(
                "ottla.client.consumer.metric.ConsumerMeter.committed", lambda _, *what: recorded.append(what)
            )
            consumer.commit({TopicPartition(topic, 0): 0})
    assert recorded == [(130, 1_000_130)]
