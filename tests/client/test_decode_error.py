"""A record that its deserializer cannot read: those before it are given, and nothing is committed past it."""

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from ottla.client import (
    Admin,
    AsyncConsumer,
    Consumer,
    OttlaError,
    Producer,
    RecordDeserializationError,
    ShareConsumer,
    TopicPartition,
    serde,
)
from ottla.client.decode import DeadLetters
from tests.client.conftest import offsets, share_from_the_start

STAMP_MS = 1_700_000_000_000
GOOD = [b'{"n":%d}' % number for number in range(5)]


@pytest.fixture
def one(bootstrap: str, topic: str) -> TopicPartition:
    """Five good JSON values, one that is none, and two good ones behind it."""
    with Producer(bootstrap) as producer:
        for value in GOOD:
            producer.send(topic, value, partition=0)
        producer.send(topic, b"oops", b"key", partition=0, timestamp=STAMP_MS, headers=[("h", b"1"), ("h", None)])
        producer.send(topic, b'{"n":6}', partition=0)
        producer.send(topic, b'{"n":7}', partition=0)
    return TopicPartition(topic, 0)


def settings(name: str, **more: Any) -> dict[str, Any]:
    return {"group_id": name, "auto_offset_reset": "earliest", "value_deserializer": "json", **more}


def numbers(records: list[Any]) -> list[int]:
    return [record.value["n"] for record in records]


def everything(consumer: Consumer, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        records = consumer.poll(20)
        assert records, f"only {len(found)} records came"
        found += records
    return found


def test_records_before_it_are_given_and_none_is_committed_past_it(
    bootstrap: str, one: TopicPartition, name: str
) -> None:
    with Consumer(bootstrap, **settings(name)) as consumer:
        consumer.assign([one])
        assert numbers(everything(consumer, 5)) == [0, 1, 2, 3, 4]
        assert consumer.position(one) == 5
        with pytest.raises(RecordDeserializationError):
            consumer.poll(20)
        assert consumer.position(one) == 5
        with pytest.raises(RecordDeserializationError) as raised:
            consumer.poll(20)
        assert consumer.position(one) == 5
    error = raised.value
    assert (error.topic, error.partition, error.offset, error.part) == (one.topic, 0, 5, "value")
    assert error.topic_partition == one
    assert (error.timestamp, error.key, error.value) == (STAMP_MS, b"key", b"oops")
    assert list(error.headers) == [("h", b"1"), ("h", None)]
    assert isinstance(error, OttlaError)
    assert isinstance(error.__cause__, json.JSONDecodeError)
    assert f"{one.topic}-0 at offset 5: the value cannot be read" in str(error)
    # Closing committed what was given, and not one record more.
    with Consumer(bootstrap, **settings(name)) as consumer:
        consumer.assign([one])
        assert offsets(consumer.committed([one])) == {one: 5}
        consumer.seek(error.topic_partition, error.offset + 1)
        assert numbers(everything(consumer, 2)) == [6, 7]


def test_an_iteration_ends_at_it_and_goes_on_behind_it(bootstrap: str, one: TopicPartition, name: str) -> None:
    seen: list[int] = []
    with Consumer(bootstrap, **settings(name)) as consumer:
        consumer.assign([one])
        while len(seen) < 7:
            try:
                for record in consumer:
                    seen.append(record.value["n"])
                    if len(seen) == 7:
                        break
            except RecordDeserializationError as error:
                assert seen == [0, 1, 2, 3, 4]
                consumer.seek(error.topic_partition, error.offset + 1)
    assert seen == [0, 1, 2, 3, 4, 6, 7]


def test_the_asynchronous_consumer_gives_and_keeps_the_same(bootstrap: str, one: TopicPartition, name: str) -> None:
    async def read() -> tuple[list[int], list[int]]:
        seen: list[int] = []
        skipped: list[int] = []
        async with AsyncConsumer(bootstrap, **settings(name)) as consumer:
            consumer.assign([one])
            while len(seen) < 7:
                try:
                    async for record in consumer:
                        seen.append(record.value["n"])
                        if len(seen) == 7:
                            break
                except RecordDeserializationError as error:
                    skipped.append(error.offset)
                    await consumer.seek(error.topic_partition, error.offset + 1)
        return seen, skipped

    assert asyncio.run(read()) == ([0, 1, 2, 3, 4, 6, 7], [5])


def test_other_partitions_go_on(bootstrap: str, one: TopicPartition, name: str) -> None:
    other = TopicPartition(one.topic, 1)
    with Producer(bootstrap) as producer:
        for number in range(10):
            producer.send(one.topic, b'{"n":%d}' % (100 + number), partition=1)
    with Consumer(bootstrap, **settings(name)) as consumer:
        consumer.assign([one, other])
        found: list[Any] = []
        errors = 0
        while len(found) < 15 or not errors:
            try:
                found += consumer.poll(20)
            except RecordDeserializationError:
                errors += 1
        assert sorted(numbers(found)) == [0, 1, 2, 3, 4, *range(100, 110)]
        assert (consumer.position(one), consumer.position(other)) == (5, 10)


def test_a_key_that_cannot_be_read_says_so(bootstrap: str, one: TopicPartition, name: str) -> None:
    def key(raw: bytes) -> str:
        raise RuntimeError("no keys today")

    with Consumer(bootstrap, **settings(name, value_deserializer=None, key_deserializer=key)) as consumer:
        consumer.assign([one])
        everything(consumer, 5)
        with pytest.raises(RecordDeserializationError, match=r"the key cannot be read \(RuntimeError: no keys today\)"):
            consumer.poll(20)


def test_an_interrupt_while_records_are_decoded_loses_none(bootstrap: str, one: TopicPartition, name: str) -> None:
    calls = [0]

    def value(raw: bytes) -> Any:
        calls[0] += 1
        if calls[0] == 3:
            raise KeyboardInterrupt
        return raw

    with Consumer(bootstrap, **settings(name, value_deserializer=value)) as consumer:
        consumer.assign([one])
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(20)
        assert consumer.position(one) == 0
        assert [record.offset for record in everything(consumer, 8)] == list(range(8))


def test_skip_leaves_it_out_and_says_so_in_the_log(
    bootstrap: str, one: TopicPartition, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.WARNING, "ottla.client"),
        Consumer(bootstrap, **settings(name, on_decode_error="skip")) as consumer,
    ):
        consumer.assign([one])
        assert numbers(everything(consumer, 7)) == [0, 1, 2, 3, 4, 6, 7]
        assert consumer.position(one) == 8
    (said,) = [entry.getMessage() for entry in caplog.records if "skipped" in entry.getMessage()]
    assert f"{one.topic}-0 at offset 5" in said


@pytest.fixture
def letters(bootstrap: str, admin: Admin, topic: str) -> Iterator[Consumer]:
    """A consumer of the dead letter topic."""
    admin.create_topic(f"{topic}.dead", 1)
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(f"{topic}.dead", 0)])
        yield consumer


def test_a_dead_letter_has_the_record_and_where_it_came_from(
    bootstrap: str, one: TopicPartition, name: str, letters: Consumer
) -> None:
    with Consumer(bootstrap, **settings(name, dead_letter_topic=f"{one.topic}.dead")) as consumer:
        consumer.assign([one])
        assert numbers(everything(consumer, 7)) == [0, 1, 2, 3, 4, 6, 7]
    with Consumer(bootstrap, group_id=name) as consumer:
        assert offsets(consumer.committed([one])) == {one: 8}
    (letter,) = everything(letters, 1)
    assert (letter.key, letter.value, letter.timestamp) == (b"key", b"oops", STAMP_MS)
    assert list(letter.headers[:2]) == [("h", b"1"), ("h", None)]
    context = dict(letter.headers[2:])
    message = context.pop("__ottla.errors.exception.message")
    assert message is not None
    assert b"Expecting value" in message
    assert context == {
        "__ottla.errors.topic": one.topic.encode(),
        "__ottla.errors.partition": b"0",
        "__ottla.errors.offset": b"5",
        "__ottla.errors.timestamp": b"%d" % STAMP_MS,
        "__ottla.errors.group": name.encode(),
        "__ottla.errors.part": b"value",
        "__ottla.errors.exception.class.name": b"json.decoder.JSONDecodeError",
    }


def test_the_position_does_not_pass_a_record_whose_dead_letter_is_refused(
    bootstrap: str, admin: Admin, one: TopicPartition, name: str
) -> None:
    admin.create_topic(f"{one.topic}.small", 1, configs={"max.message.bytes": "20"})
    with Consumer(bootstrap, **settings(name, dead_letter_topic=f"{one.topic}.small")) as consumer:
        consumer.assign([one])
        assert numbers(everything(consumer, 5)) == [0, 1, 2, 3, 4]
        with pytest.raises(OttlaError, match=rf"{one.topic}\.small failed: MESSAGE_TOO_LARGE"):
            consumer.poll(20)
        assert consumer.position(one) == 5
    with Consumer(bootstrap, group_id=name) as consumer:
        assert offsets(consumer.committed([one])) == {one: 5}


def test_a_dead_letter_of_the_dead_letter_topic_is_an_error(bootstrap: str, one: TopicPartition, name: str) -> None:
    with Consumer(bootstrap, **settings(name, dead_letter_topic=one.topic)) as consumer:
        consumer.assign([one])
        everything(consumer, 5)
        with pytest.raises(OttlaError, match="the record is in the dead letter topic"):
            consumer.poll(20)
        assert consumer.position(one) == 5


def test_the_asynchronous_consumer_writes_dead_letters(
    bootstrap: str, one: TopicPartition, name: str, letters: Consumer
) -> None:
    async def read() -> list[int]:
        seen: list[int] = []
        async with AsyncConsumer(bootstrap, **settings(name, dead_letter_topic=f"{one.topic}.dead")) as consumer:
            consumer.assign([one])
            async for record in consumer:
                seen.append(record.value["n"])
                if len(seen) == 7:
                    break
        return seen

    assert asyncio.run(read()) == [0, 1, 2, 3, 4, 6, 7]
    assert [record.value for record in everything(letters, 1)] == [b"oops"]


def test_commits_are_of_where_the_poll_began_while_its_dead_letter_is_under_way(
    bootstrap: str, one: TopicPartition, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another task may commit meanwhile: a crash then must lose neither the record nor the others of the poll."""
    write = DeadLetters.write

    async def read() -> tuple[list[int | None], list[int]]:
        begun, may_go_on = asyncio.Event(), asyncio.Event()

        async def held(letters: DeadLetters, errors: Any) -> None:
            begun.set()
            await may_go_on.wait()
            await write(letters, errors)

        monkeypatch.setattr(DeadLetters, "write", held)
        given = settings(name, dead_letter_topic=f"{one.topic}.dead", max_poll_records=3)
        async with AsyncConsumer(bootstrap, **given) as consumer:
            consumer.assign([one])
            seen = numbers(await consumer.poll(20))
            polled = asyncio.create_task(consumer.poll(20))
            committed = []
            await begun.wait()
            for _ in range(2):
                await consumer.commit()
                committed.append(offsets(await consumer.committed([one]))[one])
                may_go_on.set()
                seen += numbers(await polled)
        return committed, seen[:3] + seen[-2:]

    assert asyncio.run(read()) == ([3, 6], [0, 1, 2, 3, 4])


def table_rows(consumer: Consumer, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        table = consumer.poll_table(20, value_serde=serde.json({"n": pa.int64()}))
        assert table.num_rows, f"only {len(found)} rows came"
        found += table["offset"].to_pylist()
    return found


def test_a_table_ends_before_it_and_the_error_has_the_record(bootstrap: str, one: TopicPartition, name: str) -> None:
    with Consumer(bootstrap, **settings(name, value_deserializer=None)) as consumer:
        consumer.assign([one])
        assert table_rows(consumer, 5) == [0, 1, 2, 3, 4]
        with pytest.raises(RecordDeserializationError) as raised:
            table_rows(consumer, 1)
        assert consumer.position(one) == 5
        error = raised.value
        assert (error.topic_partition, error.offset, error.part) == (one, 5, "value")
        assert (error.timestamp, error.key, error.value) == (STAMP_MS, b"key", b"oops")
        assert list(error.headers) == [("h", b"1"), ("h", None)]
        consumer.seek(error.topic_partition, error.offset + 1)
        assert table_rows(consumer, 2) == [6, 7]


def test_a_table_without_it_and_its_dead_letter(
    bootstrap: str, one: TopicPartition, name: str, letters: Consumer
) -> None:
    more = {"value_deserializer": None, "dead_letter_topic": f"{one.topic}.dead"}
    with Consumer(bootstrap, **settings(name, **more)) as consumer:
        consumer.assign([one])
        assert table_rows(consumer, 7) == [0, 1, 2, 3, 4, 6, 7]
        assert consumer.position(one) == 8
    (letter,) = everything(letters, 1)
    assert (letter.key, letter.value, letter.timestamp) == (b"key", b"oops", STAMP_MS)
    assert dict(letter.headers)["__ottla.errors.offset"] == b"5"


def test_a_table_skips_it(bootstrap: str, one: TopicPartition, name: str) -> None:
    with Consumer(bootstrap, **settings(name, value_deserializer=None, on_decode_error="skip")) as consumer:
        consumer.assign([one])
        assert table_rows(consumer, 7) == [0, 1, 2, 3, 4, 6, 7]
        consumer.seek(one, 6)
        assert table_rows(consumer, 2) == [6, 7], "there is nothing to skip"


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"on_decode_error": "ignore"}, "one of raise, skip, dead-letter"),
        ({"on_decode_error": "dead-letter"}, "needs dead.letter.topic"),
        ({"on_decode_error": "skip", "dead_letter_topic": "t"}, "dead.letter.topic has no effect"),
        ({"dead_letter_topic": "bad name"}, "a topic name"),
    ],
)
def test_settings_that_do_not_fit_are_refused(given: dict[str, Any], wrong: str) -> None:
    with pytest.raises(OttlaError, match=wrong):
        Consumer("127.0.0.1:9", **given)


# ---- share groups


def share(admin: Admin, bootstrap: str, name: str, **more: Any) -> ShareConsumer:
    share_from_the_start(admin, name)
    return ShareConsumer(bootstrap, group_id=name, value_deserializer="json", **more)


def shared(consumer: ShareConsumer, count: int) -> list[int]:
    found: list[int] = []
    for _ in range(40):
        if len(found) >= count:
            break
        found += [record.value["n"] for record in consumer.poll(1.0)]
    return found


def test_a_share_consumer_gives_the_others_and_the_error_has_the_record(
    admin: Admin, bootstrap: str, one: TopicPartition, name: str
) -> None:
    with share(admin, bootstrap, name) as consumer:
        consumer.subscribe([one.topic])
        assert shared(consumer, 5) == [0, 1, 2, 3, 4]
        with pytest.raises(RecordDeserializationError) as raised:
            consumer.poll(10)
        assert (raised.value.topic_partition, raised.value.offset, raised.value.value) == (one, 5, b"oops")
        assert "released" in str(raised.value)
        assert shared(consumer, 2) == [6, 7]


def test_a_share_consumer_rejects_what_it_skips(admin: Admin, bootstrap: str, one: TopicPartition, name: str) -> None:
    with share(admin, bootstrap, name, on_decode_error="skip") as consumer:
        consumer.subscribe([one.topic])
        assert shared(consumer, 7) == [0, 1, 2, 3, 4, 6, 7]
        consumer.commit()
    # Nobody gets it again: neither released nor locked.
    with ShareConsumer(bootstrap, group_id=name) as consumer:
        consumer.subscribe([one.topic])
        assert consumer.poll(2.0) == []


def test_a_share_consumer_rejects_what_has_its_dead_letter(
    admin: Admin, bootstrap: str, one: TopicPartition, name: str, letters: Consumer
) -> None:
    with share(admin, bootstrap, name, dead_letter_topic=f"{one.topic}.dead") as consumer:
        consumer.subscribe([one.topic])
        assert shared(consumer, 7) == [0, 1, 2, 3, 4, 6, 7]
        consumer.commit()
    (letter,) = everything(letters, 1)
    assert (letter.key, letter.value) == (b"key", b"oops")
    with ShareConsumer(bootstrap, group_id=name) as consumer:
        consumer.subscribe([one.topic])
        assert consumer.poll(2.0) == []


def test_a_share_consumer_that_is_closed_says_which_dead_letter_was_not_written(
    bootstrap: str, admin: Admin, one: TopicPartition, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    admin.create_topic(f"{one.topic}.dead", 1, 1, {"max.message.bytes": "10"})
    with (
        caplog.at_level(logging.WARNING, "ottla.client"),
        share(admin, bootstrap, name, dead_letter_topic=f"{one.topic}.dead") as consumer,
    ):
        consumer.subscribe([one.topic])
        assert shared(consumer, 5)
    (told,) = [entry.getMessage() for entry in caplog.records if "before the next poll" in entry.getMessage()]
    assert f"{one.topic}.dead" in told
