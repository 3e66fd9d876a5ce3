"""A consumer of assigned partitions against a real cluster: positions, resets, pauses, and many kinds of programs."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.client import (
    AsyncConsumer,
    Consumer,
    ErrorCode,
    KafkaError,
    OttlaError,
    Producer,
    RequestTimedOut,
    TopicPartition,
)
from ottla.kernel.client_error import NotReachable
from tests.client.conftest import eventually

START_MS = 1_700_000_000_000


@pytest.fixture
def one(bootstrap: str, topic: str) -> TopicPartition:
    """A partition of 100 records, a second apart."""
    with Producer(bootstrap) as producer:
        for number in range(100):
            producer.send(topic, b"%03d" % number, partition=0, timestamp=START_MS + 1_000 * number)
    return TopicPartition(topic, 0)


@pytest.fixture
def consumer(bootstrap: str, one: TopicPartition) -> Iterator[Consumer]:
    with Consumer(bootstrap, auto_offset_reset="earliest", max_poll_records=10) as made:
        made.assign([one])
        yield made


def following(consumer: Consumer) -> int:
    """The offset of the next record that a poll gives."""
    records = consumer.poll(30)
    assert records, "nothing came"
    return records[0].offset


def test_polls_give_every_record_once_and_in_order(consumer: Consumer, one: TopicPartition) -> None:
    offsets: list[int] = []
    while len(offsets) < 100:
        records = consumer.poll(10)
        assert 0 < len(records) <= 10
        offsets += [record.offset for record in records]
        assert consumer.position(one) == offsets[-1] + 1
    assert offsets == list(range(100))
    assert consumer.poll(0) == []


def test_a_seek_goes_where_it_says(consumer: Consumer, one: TopicPartition) -> None:
    assert following(consumer) == 0
    consumer.seek(one, 70)
    assert consumer.position(one) == 70
    assert following(consumer) == 70
    consumer.seek_to_beginning([one])
    assert following(consumer) == 0
    consumer.seek_to_end()
    assert consumer.position(one) == 100
    with pytest.raises(OttlaError, match="invalid offset: -1"):
        consumer.seek(one, -1)


def test_a_seek_within_an_iteration_holds_from_the_next_record_on(consumer: Consumer, one: TopicPartition) -> None:
    seen = []
    for record in consumer:
        seen.append(record.offset)
        if seen == [0, 1, 2]:
            consumer.seek(one, 50)
            assert consumer.position(one) == 50
        if record.offset == 52:
            consumer.seek_to_beginning()
        if len(seen) == 8:
            break
    assert seen == [0, 1, 2, 50, 51, 52, 0, 1]


def test_a_worker_whose_transaction_was_aborted_goes_back_to_what_is_committed(
    bootstrap: str, one: TopicPartition
) -> None:
    settings: dict[str, Any] = {"enable_auto_commit": False, "auto_offset_reset": "earliest", "max_poll_records": 10}
    with Consumer(bootstrap, group_id=f"{one.topic}-group", **settings) as consumer:
        consumer.assign([one])
        assert following(consumer) == 0
        consumer.seek_to_committed()
        assert following(consumer) == 0, "nothing is committed: the policy decides"
        consumer.commit()
        assert following(consumer) == 10
        assert following(consumer) == 20
        consumer.seek_to_committed([one])
        assert following(consumer) == 10
    with Consumer(bootstrap) as alone:
        alone.assign([one])
        with pytest.raises(OttlaError, match=r"seek_to_committed needs group\.id"):
            alone.seek_to_committed()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_assignment_by_hand_and_a_subscription_do_not_mix(bootstrap: str, one: TopicPartition, protocol: str) -> None:
    with Consumer(
        bootstrap,
        group_id=f"by-hand-{protocol}",
        group_protocol=protocol,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        consumer.assign([one])
        with pytest.raises(OttlaError, match="unsubscribe first"):
            consumer.subscribe([one.topic])
        assert following(consumer) == 0, "the assignment goes on"
        consumer.unsubscribe()
        consumer.subscribe([one.topic])
        with pytest.raises(OttlaError, match="unsubscribe first"):
            consumer.assign([one])
        assert following(consumer) >= 0


def test_offsets_are_found_by_time(consumer: Consumer, one: TopicPartition) -> None:
    found = consumer.offsets_for_times({one: START_MS + 41_500})
    assert found == {one: (42, START_MS + 42_000)}
    assert consumer.offsets_for_times({one: START_MS + 1_000_000}) == {one: None}
    assert consumer.offsets_for_times({one: 0}) == {one: (0, START_MS)}
    for special in (-1, -2, -3):
        # The protocol's words for the end, the beginning and the latest timestamp.
        with pytest.raises(ValueError, match=f"timestamp .*: {special} "):
            consumer.offsets_for_times({one: special})
    assert consumer.beginning_offsets([one]) == {one: 0}
    assert consumer.end_offsets([one]) == {one: 100}


def test_a_paused_partition_gives_nothing_and_stays_where_it_is(consumer: Consumer, one: TopicPartition) -> None:
    assert following(consumer) == 0
    consumer.pause([one])
    assert consumer.paused() == {one}
    assert consumer.poll(0.3) == []
    consumer.resume([one])
    assert following(consumer) == 10


def test_lag_is_what_is_still_to_read(consumer: Consumer, one: TopicPartition) -> None:
    assert following(consumer) == 0
    assert consumer.lag(one) == 90


def test_a_reset_begins_where_its_policy_says(bootstrap: str, one: TopicPartition) -> None:
    for policy, begin in (
        ("earliest", 0),
        ("latest", 100),
        ("by_duration:PT1S", 100),
        ("by_duration:P1DT2H3M4.5S", 100),
        ("by_duration:P99999D", 0),
    ):
        with Consumer(bootstrap, auto_offset_reset=policy) as consumer:
            consumer.assign([one])
            assert consumer.position(one) == begin
    with Consumer(bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([one])
        with pytest.raises(KafkaError) as error:
            consumer.poll(5)
        assert error.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        consumer.seek(one, 1_000)
        with pytest.raises(KafkaError, match="1000 is out of range"):
            consumer.poll(10)


@pytest.mark.parametrize(
    "given", ["by_duration:", "by_duration:PTinfS", "by_duration:PT-5S", "by_duration:1H", "soon", 5]
)
def test_a_reset_that_is_none_is_refused_with_a_way_out(given: object) -> None:
    with pytest.raises(OttlaError, match=r"auto\.offset\.reset: .*such as by_duration:PT1H or by_duration:P7D"):
        Consumer("127.0.0.1:1", auto_offset_reset=given)  # type: ignore[arg-type]


def test_a_look_up_of_ends_that_fails_holds_up_no_record_by_time(
    bootstrap: str, one: TopicPartition, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    young = TopicPartition(topic, 1)
    with Producer(bootstrap) as producer:
        producer.send(topic, b"young", partition=1).result(30)
    with Consumer(bootstrap, auto_offset_reset="by_duration:PT1H") as consumer:
        ask = consumer._async._list_offsets

        async def by_time_only(times: Any, *more: Any) -> Any:
            if -1 in times.values():
                raise NotReachable("the second question")
            return await ask(times, *more)

        monkeypatch.setattr(consumer._async, "_list_offsets", by_time_only)
        consumer.assign([one, young])
        found: list[bytes] = []

        def read() -> bool:
            found.extend(record.value for record in consumer.poll(1))
            return bool(found)

        eventually(read)
        assert found == [b"young"]
        monkeypatch.undo()
        assert consumer.position(one) == 100


def test_a_position_that_is_not_found_out_in_time_is_a_timeout(bootstrap: str, one: TopicPartition) -> None:
    with Consumer(bootstrap, default_api_timeout_ms=200) as consumer:
        consumer.assign([TopicPartition(one.topic, 7)])
        with pytest.raises(RequestTimedOut, match=f"{one.topic}-7"):
            consumer.position(TopicPartition(one.topic, 7))


def test_what_was_polled_is_committed_while_the_program_goes_on_to_poll(bootstrap: str, one: TopicPartition) -> None:
    """By a later poll, never by the one that gave it; another consumer sees it before this one closes."""
    options: dict[str, Any] = {"group_id": one.topic, "auto_offset_reset": "earliest"}
    with (
        Consumer(bootstrap, auto_commit_interval_ms=20, max_poll_records=1, **options) as consumer,
        Consumer(bootstrap, enable_auto_commit=False, **options) as other,
    ):
        consumer.assign([one])
        while not (given := consumer.poll(10)):
            pass
        seen: list[int] = []

        def committed() -> int:
            """What is committed now; no poll is between the two questions."""
            at = other.committed([one])[one]
            seen.append(0 if at is None else at.offset)
            return seen[-1]

        assert committed() == 0
        last = given[-1].offset

        def polled() -> bool:
            nonlocal last
            for record in consumer.poll(0.05):
                last = record.offset
            assert committed() <= last, "committed before the program had another poll"
            return seen[-1] >= 3

        eventually(polled)
    assert seen == sorted(seen)


def test_values_are_decoded_and_what_cannot_be_says_where_it_is(bootstrap: str, one: TopicPartition) -> None:
    with Consumer(bootstrap, auto_offset_reset="earliest", value_deserializer="json") as consumer:
        consumer.assign([one])
        with pytest.raises(OttlaError, match=f"{one.topic}-0 at offset 0: the value cannot be read"):
            consumer.poll(10)
        consumer.seek(one, 100)
        with Producer(bootstrap, value_serializer="json") as producer:
            producer.send(one.topic, {"a": 1}, partition=0)
        assert [record.value for record in consumer.poll(10)] == [{"a": 1}]


def test_a_notebook_with_a_running_loop_uses_the_synchronous_clients(bootstrap: str, one: TopicPartition) -> None:
    async def cell() -> int:
        with Producer(bootstrap) as producer, Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
            producer.send(one.topic, b"v", partition=0).result(30)
            consumer.assign([one])
            return sum(1 for record in consumer.poll(10))

    assert asyncio.run(cell()) > 0


def test_many_threads_share_a_producer(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer, Consumer(bootstrap) as consumer:
        threads = [threading.Thread(target=lambda: [producer.send(topic, b"v") for _ in range(200)]) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        producer.flush(60)
        ends = consumer.end_offsets([TopicPartition(topic, number) for number in range(3)])
        assert sum(ends.values()) == 1_000


def test_a_partition_that_comes_is_read_while_another_still_has_plenty(bootstrap: str, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with Producer(bootstrap) as producer:
        for number in range(20_000):
            producer.send(topic, b"%05d" % number, partition=0)
        producer.send(topic, b"other", partition=1)
    # A fetch that waits for news of the first would keep the second waiting.
    with Consumer(bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=5) as consumer:
        consumer.assign([first])
        assert consumer.poll(30, max_records=1)
        consumer.assign([first, second])
        found: list[tuple[int, int]] = []
        while (1, 0) not in found[-1:] and len(found) < 19_000:
            (record,) = consumer.poll(30, max_records=1)
            found.append((record.partition, record.offset))
    assert found[-1] == (1, 0), "it had to wait until the other was read out"
    assert found[:-1] == [(0, offset) for offset in range(1, len(found))]


def test_the_loop_is_woken_by_polls_that_make_room_only(bootstrap: str, topic: str) -> None:
    one = TopicPartition(topic, 0)
    with Producer(bootstrap, batch_size=1 << 20, linger_ms=1_000) as producer:
        for number in range(5_000):
            producer.send(topic, b"%05d" % number, partition=0)
    with Consumer(bootstrap, auto_offset_reset="earliest", max_poll_records=10) as consumer:
        consumer.assign([one])
        found = consumer.poll(30)
        signals = 0

        def signal() -> None:
            nonlocal signals
            signals += 1
            woken()

        woken = consumer._async._fetcher.signal
        consumer._async._fetcher.signal = signal  # type: ignore[method-assign]
        while len(found) < 5_000:
            records = consumer.poll(30)
            assert records, "nothing came"
            found += records
    assert [record.offset for record in found] == list(range(5_000))
    assert signals < 100, f"{signals} in 500 polls"


@pytest.mark.parametrize("by", ["for", "poll", "poll_table"])
def test_what_an_iteration_leaves_comes_with_the_next_poll(consumer: Consumer, one: TopicPartition, by: str) -> None:
    """The rest of its poll was passed over, and the next commit said that it had been read."""
    assert next(iter(consumer)).offset == 0
    assert consumer.positions() == {one: 1}
    if by == "for":
        assert [next(iter(consumer)).offset for _ in range(3)] == [1, 2, 3]
    elif by == "poll":
        assert following(consumer) == 1
    else:
        assert consumer.poll_table(30)["offset"][0].as_py() == 1


def test_what_an_asynchronous_iteration_leaves_comes_with_the_next_poll(bootstrap: str, one: TopicPartition) -> None:
    async def run() -> None:
        async with AsyncConsumer(bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([one])
            assert (await anext(aiter(consumer))).offset == 0
            assert (await consumer.poll(30))[0].offset == 1

    asyncio.run(run())
