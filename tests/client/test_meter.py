"""Each figure of a client's metrics, from events at known times."""

from __future__ import annotations

import math

import pytest

from ottla.client.connection.node_metric import NodeMeter
from ottla.client.consumer.metric import ConsumerMeter, partition_metrics
from ottla.client.consumer.position import PartitionPosition
from ottla.client.producer.metric import ProducerMeter
from ottla.kernel.ids import TopicPartition

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
#: Ten seconds after the meters began.
NOW = 10_000


def position(at: int | None = 40, high: int = 100, stable: int = 90, start: int = 10) -> PartitionPosition:
    state = PartitionPosition(ONE)
    if at is not None:
        state.seek(at)
    state.high_watermark, state.last_stable_offset, state.log_start_offset = high, stable, start
    return state


def test_a_consumer_counts_polls_fetches_commits_and_rebalances() -> None:
    meter = ConsumerMeter(0)
    for at in (1_000, 4_000, 9_000):
        meter.polled(at)
    meter.consumed(30, 1_000)
    meter.consumed(70, 9_000)
    meter.fetched(1_000, 20, 0, 1_000)
    meter.fetched(3_000, 60, 500, 9_000)
    meter.committed(5, 2_000)
    meter.committed(15, 3_000)
    meter.rebalanced()
    meter.rebalanced()
    figures = meter.snapshot({ONE: position(), TWO: position(high=50)}, {}, stable=False, now_ms=NOW)
    assert (figures.records_consumed_total, figures.records_consumed_rate) == (100, 10.0)
    assert (figures.bytes_consumed_total, figures.bytes_consumed_rate) == (4_000, 400.0)
    assert (figures.fetch_total, figures.fetch_rate) == (2, 0.2)
    assert (figures.fetch_size_avg, figures.fetch_size_max) == (2_000, 3_000)
    assert (figures.fetch_latency_avg, figures.fetch_latency_max) == (40, 60)
    assert (figures.fetch_throttle_time_avg, figures.fetch_throttle_time_max) == (250, 500)
    assert (figures.commit_total, figures.commit_rate) == (2, 0.2)
    assert (figures.commit_latency_avg, figures.commit_latency_max) == (10, 15)
    assert (figures.time_between_poll_avg, figures.time_between_poll_max) == (4_000, 5_000)
    assert (figures.last_poll_seconds_ago, figures.rebalance_total, figures.assigned_partitions) == (1.0, 2, 2)
    assert figures.records_lag == {ONE: 60, TWO: 10}
    assert (figures.records_lag_max, figures.records_lead_min) == (60, 30)
    assert list(figures.partitions) == [ONE, TWO] and not figures.topics


def test_a_consumer_that_has_done_nothing_has_no_means() -> None:
    figures = ConsumerMeter(0).snapshot({ONE: position(None)}, {}, stable=False, now_ms=NOW)
    assert math.isnan(figures.last_poll_seconds_ago) and math.isnan(figures.time_between_poll_avg)
    assert math.isnan(figures.records_lag_max) and math.isnan(figures.records_lead_min)
    assert figures.records_lag == {} and figures.assigned_partitions == 1
    assert (figures.records_consumed_total, figures.fetch_total, figures.commit_total) == (0, 0, 0)
    meter = ConsumerMeter(0)
    meter.polled(0)
    assert meter.snapshot({}, {}, stable=False, now_ms=NOW).last_poll_seconds_ago == 10.0


def test_a_consumer_counts_by_topic() -> None:
    meter = ConsumerMeter(0)
    topic = meter.topic("t", 0)
    topic.bytes.record(1_000, 1_000)
    topic.bytes.record(3_000, 2_000)
    topic.records.record(50, 2_000)
    assert meter.topic("t", NOW) is topic and meter.topic("u", NOW) is not topic
    figures = meter.snapshot({}, {}, stable=False, now_ms=NOW).topics
    assert (figures["t"].records_consumed_total, figures["t"].records_consumed_rate) == (50, 5.0)
    assert (figures["t"].bytes_consumed_total, figures["t"].bytes_consumed_rate) == (4_000, 400.0)
    assert (figures["t"].fetch_size_avg, figures["t"].fetch_size_max) == (2_000, 3_000)
    assert figures["t"].records_per_request_avg == 25
    assert figures["u"].records_per_request_avg == 0


@pytest.mark.parametrize(
    ("state", "stable", "lag", "lead"),
    [
        (position(), False, 60, 30),
        (position(), True, 50, 30),
        (position(95), True, 0, 85),
        (position(100), False, 0, 90),
        (position(5), False, 95, 0),
        (position(5, start=-1), False, 95, 5),
        (position(0, high=0, stable=0, start=0), False, 0, 0),
    ],
)
def test_lag_is_what_is_left_to_read_and_lead_what_is_kept_before(
    state: PartitionPosition, stable: bool, lag: int, lead: int
) -> None:
    figures = partition_metrics(state, stable=stable, now_ms=NOW)
    assert (figures.records_lag, figures.records_lead) == (lag, lead)


@pytest.mark.parametrize("state", [position(None), position(high=-1)])
def test_there_is_no_lag_before_the_first_fetch(state: PartitionPosition) -> None:
    figures = partition_metrics(state, stable=False, now_ms=NOW)
    assert math.isnan(figures.records_lag) and math.isnan(figures.records_lead)


@pytest.mark.parametrize(
    ("preferred", "replica"), [(None, -1), ((3, NOW + 1), 3), ((0, NOW + 1), 0), ((3, NOW), -1), ((3, NOW - 1), -1)]
)
def test_a_preferred_replica_is_told_as_long_as_it_counts(preferred: tuple[int, int] | None, replica: int) -> None:
    state = position()
    state.preferred = preferred
    assert partition_metrics(state, stable=False, now_ms=NOW).preferred_read_replica == replica


def test_a_producer_counts_batches_requests_and_waits() -> None:
    meter = ProducerMeter(0)
    meter.batch_sent("t", 30, 1_000, 10, 1_000)
    meter.batch_sent("u", 10, 3_000, 30, 2_000)
    meter.request_sent(40, 4_100, 2_000)
    meter.request_sent(20, 900, 3_000)
    meter.answered(8, 0, 4_000)
    meter.answered(12, 700, 5_000)
    meter.retried("t", 30, 5_000)
    meter.failed("u", 10, 6_000)
    meter.waited_for_room(250, 7_000)
    meter.waited_for_room(50, 7_000)
    figures = meter.snapshot(in_flight=3, memory=1_000, memory_used=400, waiting=2, nodes={}, now_ms=NOW)
    assert (figures.record_send_total, figures.record_send_rate, figures.records_per_request_avg) == (60, 6.0, 30)
    assert (figures.outgoing_byte_total, figures.outgoing_byte_rate) == (5_000, 500.0)
    assert (figures.request_total, figures.request_rate, figures.requests_in_flight) == (2, 0.2, 3)
    assert (figures.batch_size_avg, figures.batch_size_max) == (2_000, 3_000)
    assert (figures.record_queue_time_avg, figures.record_queue_time_max) == (20, 30)
    assert (figures.request_latency_avg, figures.request_latency_max) == (10, 12)
    assert (figures.produce_throttle_time_avg, figures.produce_throttle_time_max) == (350, 700)
    assert (figures.record_retry_total, figures.record_retry_rate) == (30, 3.0)
    assert (figures.record_error_total, figures.record_error_rate) == (10, 1.0)
    assert (figures.buffer_total_bytes, figures.buffer_available_bytes) == (1_000, 600)
    assert (figures.bufferpool_wait_time_total, figures.waiting_threads) == (300, 2)
    t, u = figures.topics["t"], figures.topics["u"]
    # Their meters began with their first batches, nine and eight seconds ago.
    assert (t.record_send_total, t.record_send_rate, t.byte_total, t.byte_rate) == (30, 30 / 9, 1_000, 1_000 / 9)
    assert (t.record_retry_total, t.record_retry_rate, t.record_error_total) == (30, 30 / 9, 0)
    assert (u.record_error_total, u.record_error_rate, u.record_retry_total) == (10, 10 / 8, 0)


def test_a_producer_whose_memory_is_overdrawn_has_none_left() -> None:
    figures = ProducerMeter(0).snapshot(in_flight=0, memory=10, memory_used=30, waiting=0, nodes={}, now_ms=NOW)
    assert figures.buffer_available_bytes == 0


def test_a_connection_counts_requests_and_answers() -> None:
    meter = NodeMeter(0)
    meter.sent(100, 1_000)
    meter.sent(300, 2_000)
    meter.answered(5_000, 7, 3_000)
    meter.answered(1_000, 9, 3_000)
    meter.answered(3_000, 8, 3_000)
    figures = meter.snapshot(NOW)
    assert (figures.request_total, figures.request_rate) == (2, 0.2)
    assert (figures.request_size_avg, figures.request_size_max) == (200, 300)
    assert (figures.outgoing_byte_total, figures.outgoing_byte_rate) == (400, 40.0)
    assert (figures.response_total, figures.response_rate) == (3, 3 / 10)
    assert (figures.incoming_byte_total, figures.incoming_byte_rate) == (9_000, 900.0)
    assert (figures.request_latency_avg, figures.request_latency_max) == (8, 9)
