"""Three brokers of Apache Kafka: racks, leaders and coordinators that move, brokers that die in the middle of the work.

What was acknowledged is there, once, in order; the client finds its way by itself and says so once.
"""

import threading
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from ottla.client import Admin, Consumer, ErrorCode, KafkaError, NewTopic, Producer, TopicPartition
from tests.client.brokers import Brokers
from tests.client.conftest import eventually

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

_names = count()


def _long(word: str) -> Any:
    return pytest.param(word, marks=pytest.mark.long)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    made = Brokers(tmp_path_factory.mktemp("brokers"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def brokers(cluster: Brokers) -> Brokers:
    """All three up, and in the ISR of everything."""
    cluster.mend()
    with Admin(cluster.bootstrap) as admin:

        def whole() -> bool:
            try:
                topics = admin.describe_topics([one.name for one in admin.list_topics(internal=True)]).check()
            except KafkaError:
                return False
            parts = [part for topic in topics.values() for part in topic.partitions]
            return len(admin.describe_cluster().nodes) == 3 and all(
                len(part.isr) == len(part.replicas) for part in parts
            )

        eventually(whole, 120)
    return cluster


@pytest.fixture
def admin(brokers: Brokers) -> Iterator[Admin]:
    with Admin(brokers.bootstrap) as client:
        yield client


def led_by(admin: Admin, leader: int) -> TopicPartition:
    """The one partition of a new topic with this leader, and the two others as followers."""
    name = f"t-{next(_names)}"
    others = [one for one in (1, 2, 3) if one != leader]
    admin.create_topics([NewTopic(name, assignments={0: [leader, *others]})]).check()
    one = TopicPartition(name, 0)
    await_leader(admin, one, leader)
    return one


def await_leader(admin: Admin, one: TopicPartition, leader: int) -> None:
    eventually(lambda: leader_of(admin, one) == leader, 60)


def leader_of(admin: Admin, one: TopicPartition) -> int | None:
    try:
        leader = admin.describe_topic(one.topic).partitions[one.partition].leader
    except KafkaError:
        return None
    return None if leader is None else leader.id


class Stream:
    """A producer that goes on sending numbers from a thread of its own until it is told to end."""

    def __init__(self, bootstrap: str, one: TopicPartition) -> None:
        self.sent = 0
        self.error: BaseException | None = None
        self._one = one
        self._end = threading.Event()
        self._producer = Producer(bootstrap, linger_ms=1, delivery_timeout_ms=120_000)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._end.is_set():
                several = [
                    self._producer.send(self._one.topic, b"%d" % (self.sent + number), partition=self._one.partition)
                    for number in range(10)
                ]
                self.sent += 10
                # Half of the time many are on their way.
                if self.sent % 20 == 0:
                    for one in several:
                        one.result(120)
            self._producer.flush()
        except BaseException as error:
            self.error = error
        finally:
            self._producer.close(flush=False)

    def goes_on(self, records: int = 200) -> None:
        """Wait until it has sent so many more."""
        before = self.sent
        eventually(lambda: self.sent >= before + records or self.error is not None, 120)

    def end(self) -> int:
        """Stop; how many were acknowledged."""
        self._end.set()
        self._thread.join(150)
        assert not self._thread.is_alive()
        assert self.error is None, self.error
        return self.sent


def read(consumer: Consumer, records: int, timeout_s: float = 90) -> list[bytes]:
    found: list[bytes] = []

    def all_there() -> bool:
        found.extend(record.value or b"" for record in consumer.poll(0.5))
        return len(found) >= records

    eventually(all_there, timeout_s)
    return found


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_a_consumer_reads_from_the_replica_in_its_rack_and_from_the_leader_without_it(
    brokers: Brokers, admin: Admin
) -> None:
    one = led_by(admin, 1)
    with (
        Producer(brokers.bootstrap) as producer,
        Consumer(brokers.bootstrap, client_rack="rack-2", auto_offset_reset="earliest") as near,
        Consumer(brokers.bootstrap, client_rack="nowhere", auto_offset_reset="earliest") as far,
    ):
        for number in range(100):
            producer.send(one.topic, b"%d" % number, partition=0)
        producer.flush()
        for consumer in (near, far):
            consumer.assign([one])
            assert read(consumer, 100) == numbers(100)
        assert near.metrics().partitions[one].preferred_read_replica == 2
        assert far.metrics().partitions[one].preferred_read_replica == -1
        brokers.of[2].kill()
        for number in range(100, 200):
            producer.send(one.topic, b"%d" % number, partition=0)
        producer.flush()
        # The near replica is gone: the leader has what follows.
        assert read(near, 100) == numbers(200)[100:]
        assert near.metrics().partitions[one].preferred_read_replica == -1


@pytest.mark.parametrize("how", ["dies", _long("moves"), _long("hangs")])
def test_nothing_is_lost_or_doubled_when_a_leader(
    brokers: Brokers, admin: Admin, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    one = led_by(admin, 2)
    stream = Stream(brokers.bootstrap, one)
    with Consumer(brokers.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([one])
        stream.goes_on()
        caplog.clear()
        if how == "moves":
            # The next one becomes the preferred one, then leads; and back.
            for leader, replicas in ((3, [3, 2, 1]), (2, [2, 3, 1])):
                admin.alter_partition_reassignments({one: replicas}).check()
                eventually(lambda: not admin.list_partition_reassignments(), 60)
                _ = admin.elect_leaders([one]).errors
                await_leader(admin, one, leader)
                stream.goes_on()
        elif how == "dies":
            brokers.of[2].kill()
            eventually(lambda: leader_of(admin, one) not in (2, None), 90)
            stream.goes_on()
        else:
            brokers.of[2].pause()
            try:
                eventually(lambda: leader_of(admin, one) not in (2, None), 90)
                stream.goes_on()
            finally:
                brokers.of[2].resume()
        sent = stream.end()
        assert read(consumer, sent) == numbers(sent)
        assert consumer.poll(0.5) == []
    said = [record.getMessage() for record in caplog.records if record.name == "ottla.client"]
    unreachable = [line for line in said if brokers.of[2].bootstrap in line and "trying again" in line]
    # Admin, producer and consumer are clients of their own: each says it once.
    assert len(unreachable) <= (0 if how == "moves" else 3), said


_REBALANCED = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS)


@pytest.mark.parametrize("protocol", ["classic", _long("consumer")])
def test_a_group_goes_on_when_its_coordinator_dies(brokers: Brokers, admin: Admin, protocol: str) -> None:
    one = led_by(admin, 1)
    group = group_at(admin, brokers, not_at=1)
    settings = {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"}
    with (
        Producer(brokers.bootstrap) as producer,
        Consumer({"bootstrap.servers": brokers.bootstrap, **settings}) as member,
    ):
        member.subscribe([one.topic])
        for number in range(50):
            producer.send(one.topic, b"%d" % number, partition=0)
        producer.flush()
        assert read(member, 50) == numbers(50)
        member.commit()
        before = admin.describe_group(group).coordinator
        assert before.id != 1
        brokers.of[before.id].kill()
        for number in range(50, 100):
            producer.send(one.topic, b"%d" % number, partition=0)
        producer.flush()
        assert read(member, 50) == numbers(100)[50:]

        def committed() -> bool:
            try:
                member.poll(0.1)
                member.commit()
            except KafkaError as error:
                # A rebalance may lie between; the position stays, as the partition is still ours afterwards.
                if not error.code.retriable and error.code not in _REBALANCED:
                    raise
                return False
            return True

        eventually(committed, 90)
    assert admin.list_group_offsets(group)[one].offset == 100
    after = admin.describe_group(group).coordinator
    assert after.id != before.id


def group_at(admin: Admin, brokers: Brokers, not_at: int) -> str:
    """A new group whose coordinator is not this broker."""
    while True:
        name = f"g-{next(_names)}"
        with Consumer(brokers.bootstrap, group_id=name) as probe:
            one = TopicPartition("__consumer_offsets", 0)
            probe.assign([one])
            probe.commit({one: 0})
        if admin.describe_group(name).coordinator.id != not_at:
            return name


@pytest.mark.parametrize("ending", ["commits", _long("aborts")])
def test_a_transaction_survives_its_coordinator(brokers: Brokers, admin: Admin, ending: str) -> None:
    one = led_by(admin, 1)
    name = transaction_at(admin, brokers, not_at=1)
    with (
        Producer(brokers.bootstrap, transactional_id=name) as producer,
        Consumer(brokers.bootstrap, auto_offset_reset="earliest", isolation_level="read_committed") as consumer,
    ):
        consumer.assign([one])
        with producer.transaction():
            producer.send(one.topic, b"0", partition=0)
        assert read(consumer, 1) == [b"0"]
        where = admin.describe_transactions([name])[name].coordinator.id
        transaction = producer.transaction()
        transaction.__enter__()
        producer.send(one.topic, b"1", partition=0)
        brokers.of[where].kill()
        producer.send(one.topic, b"2", partition=0)
        if ending == "commits":
            transaction.__exit__(None, None, None)
        else:
            transaction.__exit__(RuntimeError, RuntimeError("no"), None)
        with producer.transaction():
            producer.send(one.topic, b"3", partition=0)
        wanted = [b"1", b"2", b"3"] if ending == "commits" else [b"3"]
        assert read(consumer, len(wanted)) == wanted
        assert consumer.poll(0.5) == []
        assert admin.describe_transactions([name])[name].coordinator.id != where


def transaction_at(admin: Admin, brokers: Brokers, not_at: int) -> str:
    """A new transactional id whose coordinator is not this broker."""
    while True:
        name = f"x-{next(_names)}"
        topic = TopicPartition("transactions-found", 0)
        with Producer(brokers.bootstrap, transactional_id=name) as producer, producer.transaction():
            producer.send(topic.topic, b"v")
        if admin.describe_transactions([name])[name].coordinator.id != not_at:
            return name


def test_members_in_racks_are_given_partitions_whose_leaders_or_replicas_are_near(
    brokers: Brokers, admin: Admin
) -> None:
    name = f"racks-{next(_names)}"
    # Each partition stands in one rack alone.
    admin.create_topics([NewTopic(name, assignments={0: [3], 1: [1], 2: [2]})]).check()
    members = {}
    try:
        for rack in (1, 2, 3):
            consumer = Consumer(
                brokers.bootstrap,
                group_id=name,
                client_rack=f"rack-{rack}",
                partition_assignment_strategy="range",
                session_timeout_ms=30_000,
            )
            consumer.subscribe([name])
            members[rack] = consumer
        wanted = {rack: {TopicPartition(name, number)} for rack, number in ((3, 0), (1, 1), (2, 2))}

        def near() -> bool:
            for consumer in members.values():
                consumer.poll(0.1)
            return {rack: consumer.assignment() for rack, consumer in members.items()} == wanted

        eventually(near, 90)
    finally:
        for consumer in members.values():
            consumer.close()
