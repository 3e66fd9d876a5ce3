"""Consumers in groups, of both protocols, against a real cluster: who reads what, and what the next one finds."""

import re
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from ottla.client import Admin, Consumer, Fenced, KafkaError, OttlaError, Producer, RebalanceListener, TopicPartition
from tests.client.conftest import eventually, offsets

#: Every way to share partitions: the protocol, and who assigns.
SHARING: dict[str, dict[str, Any]] = {
    **{
        assignor: {"partition_assignment_strategy": assignor, "heartbeat_interval_ms": 100}
        for assignor in ("range", "roundrobin", "sticky", "cooperative-sticky")
    },
    "consumer": {"group_protocol": "consumer"},
}
#: The settings of a member that hears of a rebalance soon.
PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {"heartbeat_interval_ms": 100},
    "consumer": {"group_protocol": "consumer"},
}


class Listener(RebalanceListener):
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, tuple[int, ...]]] = []

    def assigned(self, partitions: list[TopicPartition]) -> None:
        self.heard.append(("assigned", tuple(one.partition for one in partitions)))

    def revoked(self, partitions: list[TopicPartition]) -> None:
        self.heard.append(("revoked", tuple(one.partition for one in partitions)))

    def lost(self, partitions: list[TopicPartition]) -> None:
        self.heard.append(("lost", tuple(one.partition for one in partitions)))


def fill(bootstrap: str, topic: str, values: int, partitions: int = 3) -> None:
    with Producer(bootstrap) as producer:
        for number in range(values):
            producer.send(topic, b"%03d" % number, partition=number % partitions)


def polled(consumers: Iterable[Consumer], holds: Callable[[], bool], into: list[bytes] | None = None) -> None:
    """Poll them all in turn until it holds."""
    members = list(consumers)

    def once() -> bool:
        for one in members:
            records = one.poll(0.05)
            if into is not None:
                into.extend(record.value or b"" for record in records)
        return holds()

    eventually(once, 30)


def has(read: list[bytes], count: int) -> bool:
    return len(read) >= count


def numbers(consumer: Consumer) -> set[int]:
    return {one.partition for one in consumer.assignment()}


@pytest.mark.parametrize("sharing", SHARING)
def test_two_members_share_the_partitions_and_one_takes_over(
    bootstrap: str, topic: str, name: str, sharing: str
) -> None:
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(Consumer(bootstrap, group_id=name, auto_offset_reset="earliest", **SHARING[sharing]))
            for _ in range(2)
        )
        for one in (first, second):
            one.subscribe([topic])
        polled(
            [first, second],
            lambda: bool(numbers(first)) and bool(numbers(second)) and numbers(first) | numbers(second) == {0, 1, 2},
        )
        assert not numbers(first) & numbers(second)
        fill(bootstrap, topic, 30)
        found: list[bytes] = []
        polled([first, second], lambda: len(found) >= 30, found)
        assert sorted(found) == [b"%03d" % number for number in range(30)], "each record is read once"
        second.close()
        polled([first], lambda: numbers(first) == {0, 1, 2})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_next_member_goes_on_where_the_last_one_committed(
    bootstrap: str, topic: str, name: str, protocol: str
) -> None:
    fill(bootstrap, topic, 30, partitions=1)
    read: list[bytes] = []
    for _ in range(3):
        with Consumer(
            bootstrap, group_id=name, **PROTOCOLS[protocol], auto_offset_reset="earliest", max_poll_records=10
        ) as consumer:
            consumer.subscribe([topic])
            polled([consumer], partial(has, read, len(read) + 10), read)
    assert read == [b"%03d" % number for number in range(30)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_record_in_hand_is_committed_with_all_before_it(bootstrap: str, topic: str, name: str, protocol: str) -> None:
    one = TopicPartition(topic, 0)
    fill(bootstrap, topic, 10, partitions=1)
    keywords = {"group_id": name, **PROTOCOLS[protocol], "auto_offset_reset": "earliest"}
    with Consumer(bootstrap, enable_auto_commit=False, **keywords) as consumer:
        consumer.subscribe([topic])
        for record in consumer:
            if record.offset == 4:
                consumer.commit(record)
                assert offsets(consumer.committed([one])) == {one: 5}
                assert consumer.position(one) == 5
            if record.offset == 6:
                consumer.commit()
                assert offsets(consumer.committed([one])) == {one: 7}
                break
        consumer.commit({one: (2, "back")})
        assert offsets(consumer.committed([one])) == {one: 2}
        over: list[KafkaError | OttlaError | None] = []
        consumer.commit_async({one: 3}, over.append)
        eventually(lambda: bool(over))
        assert over == [None]
        assert offsets(consumer.committed([one])) == {one: 3}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_listener_hears_of_what_comes_and_goes(bootstrap: str, topic: str, name: str, protocol: str) -> None:
    listener = Listener()
    with Consumer(bootstrap, group_id=name, **PROTOCOLS[protocol]) as consumer:
        consumer.subscribe([topic], listener=listener)
        polled([consumer], lambda: len(listener.heard) == 1)
        assert listener.heard == [("assigned", (0, 1, 2))]
        with Consumer(bootstrap, group_id=name, **PROTOCOLS[protocol]) as other:
            other.subscribe([topic])
            polled([consumer, other], lambda: bool(numbers(other)) and len(numbers(consumer) | numbers(other)) == 3)
        polled([consumer], lambda: numbers(consumer) == {0, 1, 2})
    owned: set[int] = set()
    for what, some in listener.heard:
        owned = owned | set(some) if what == "assigned" else owned - set(some)
    assert owned == set(), "all that came has gone"
    assert "lost" not in [what for what, _ in listener.heard]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_listener_that_raises_is_heard_by_the_program(bootstrap: str, topic: str, name: str, protocol: str) -> None:
    class Failing(Listener):
        def assigned(self, partitions: list[TopicPartition]) -> None:
            raise ZeroDivisionError

    with Consumer(bootstrap, group_id=name, **PROTOCOLS[protocol]) as consumer:
        consumer.subscribe([topic], listener=Failing())
        with pytest.raises(ZeroDivisionError):
            polled([consumer], lambda: False)


def test_a_pattern_finds_topics_that_come_later(bootstrap: str, admin: Admin, name: str) -> None:
    admin.create_topic(f"{name}-a", 1)
    with Consumer(bootstrap, group_id=name, auto_offset_reset="earliest", metadata_max_age_ms=200) as consumer:
        consumer.subscribe(re.compile(f"{name}-.*"))
        polled([consumer], lambda: {one.topic for one in consumer.assignment()} == {f"{name}-a"})
        admin.create_topic(f"{name}-b", 1)
        polled([consumer], lambda: {one.topic for one in consumer.assignment()} == {f"{name}-a", f"{name}-b"})
        assert consumer.subscription() == {f"{name}-a", f"{name}-b"}


def test_a_pattern_finds_topics_beside_those_that_the_client_knows(bootstrap: str, admin: Admin, name: str) -> None:
    for each in "ab":
        admin.create_topic(f"{name}-{each}", 1)
    with Consumer(bootstrap, group_id=name) as consumer:
        consumer.partitions_for(f"{name}-a")
        consumer.subscribe(re.compile(f"{name}-.*"))
        polled([consumer], lambda: {one.topic for one in consumer.assignment()} == {f"{name}-a", f"{name}-b"})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_subscribed_topic_is_read_once_it_is_created(
    bootstrap: str, admin: Admin, topic: str, name: str, protocol: str
) -> None:
    later = f"{name}-later"
    with Consumer(
        bootstrap, group_id=name, allow_auto_create_topics=False, metadata_max_age_ms=200, **PROTOCOLS[protocol]
    ) as consumer:
        consumer.subscribe([topic, later])
        polled([consumer], lambda: numbers(consumer) == {0, 1, 2})
        admin.create_topic(later, 1)
        polled([consumer], lambda: TopicPartition(later, 0) in consumer.assignment())


def test_the_broker_resolves_a_pattern_of_the_consumer_protocol(bootstrap: str, admin: Admin, name: str) -> None:
    admin.create_topic(f"{name}-a", 1)
    # A pattern is resolved again only every 10 s, so the topic must be known before.
    eventually(lambda: f"{name}-a" in [one.name for one in admin.list_topics()])
    with Consumer(bootstrap, group_id=name, group_protocol="consumer") as consumer:
        consumer.subscribe(f"^{name}-.*")
        polled([consumer], lambda: {one.topic for one in consumer.assignment()} == {f"{name}-a"})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    bootstrap: str, topic: str, name: str, protocol: str
) -> None:
    keywords = {"group_id": name, **PROTOCOLS[protocol]}
    listener = Listener()
    with Consumer(bootstrap, group_instance_id="stays", **keywords) as stays:
        stays.subscribe([topic], listener=listener)
        with Consumer(bootstrap, group_instance_id="goes", **keywords) as goes:
            goes.subscribe([topic])
            polled([stays, goes], lambda: bool(numbers(goes)) and len(numbers(stays) | numbers(goes)) == 3)
            before = numbers(goes)
        heard = list(listener.heard)
        with Consumer(bootstrap, group_instance_id="goes", **keywords) as again:
            again.subscribe([topic])
            polled([stays, again], lambda: bool(numbers(again)))
            assert numbers(again) == before
        assert listener.heard == heard


def test_a_second_member_of_the_same_instance_id_locks_the_first_out(bootstrap: str, topic: str, name: str) -> None:
    with (
        Consumer(bootstrap, group_id=name, group_instance_id="one", heartbeat_interval_ms=100) as first,
        Consumer(bootstrap, group_id=name, group_instance_id="one", heartbeat_interval_ms=100) as second,
    ):
        first.subscribe([topic])
        polled([first], lambda: numbers(first) == {0, 1, 2})
        second.subscribe([topic])
        polled([second], lambda: numbers(second) == {0, 1, 2})
        with pytest.raises(Fenced):
            polled([first], lambda: False)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_does_not_poll_leaves_and_comes_back_with_its_next_poll(
    bootstrap: str, admin: Admin, topic: str, name: str, protocol: str
) -> None:
    listener = Listener()
    with Consumer(bootstrap, group_id=name, **PROTOCOLS[protocol], max_poll_interval_ms=1_000) as consumer:
        consumer.subscribe([topic], listener=listener)
        polled([consumer], lambda: numbers(consumer) == {0, 1, 2})
        eventually(lambda: not admin.describe_group(name).members)
        polled([consumer], lambda: ("lost", (0, 1, 2)) in listener.heard and numbers(consumer) == {0, 1, 2})


def test_a_group_is_needed_for_what_groups_do(bootstrap: str, topic: str) -> None:
    with Consumer(bootstrap) as consumer:
        for call in (
            lambda: consumer.subscribe([topic]),
            consumer.commit,
            lambda: consumer.committed([TopicPartition(topic, 0)]),
        ):
            with pytest.raises(OttlaError, match=r"group\.id"):
                call()
