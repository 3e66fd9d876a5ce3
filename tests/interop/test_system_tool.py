"""The programs of Apache's system tests against the node, and what they report held against the records in it.

They are in Kafka's tools jar: ClientCompatibilityTest, VerifiableProducer, VerifiableConsumer, VerifiableShareConsumer,
TransactionalMessageCopier and LogCompactionTester. Each tells what it did in lines of JSON.
"""

import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.interop import toolchain
from tests.interop.peer import Peer
from tests.interop.scene import plain
from tests.interop.server import Server

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]

TIMEOUT_S = 180.0
Json = dict[str, Any]


class Program:
    """One running program of Apache's. `events` are the lines it has said so far."""

    def __init__(self, name: str, arguments: Sequence[str], output: Path) -> None:
        options = [*toolchain.quick_jvm("256m"), "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
        command = ["java", *options, "-cp", toolchain.classpath(), f"org.apache.kafka.tools.{name}", *arguments]
        self.name = name
        self.output = output
        with output.open("wb") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    def wait(self, code: int = 0) -> list[Json]:
        """Wait for its end, which must be with this code."""
        ended = self.process.wait(TIMEOUT_S)
        assert ended == code, f"{self.name} ended with {ended}\n{self.output.read_text(errors='replace')[-4000:]}"
        return self.events

    def stop(self) -> list[Json]:
        """Ask it to end, as a user does who has seen enough."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(TIMEOUT_S)
        return self.events

    @property
    def events(self) -> list[Json]:
        lines = self.output.read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def named(self, name: str) -> list[Json]:
        return [event for event in self.events if event.get("name") == name]


class Programs:
    """Starts programs, and ends those that a test leaves."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.started: list[Program] = []

    def start(self, name: str, *arguments: str) -> Program:
        program = Program(name, arguments, self.directory / f"{len(self.started)}.txt")
        self.started.append(program)
        return program

    def run(self, name: str, *arguments: str) -> list[Json]:
        return self.start(name, *arguments).wait()

    def close(self) -> None:
        for program in self.started:
            if program.process.poll() is None:
                program.process.kill()
                program.process.wait()


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    some = Programs(tmp_path)
    yield some
    some.close()


def test_the_compatibility_test_finds_a_current_broker(server: Server, programs: Programs, name: str) -> None:
    """What Apache's own system test asserts of a current broker: all is supported. Without an authorizer, ACLs are
    known and refused, which this program counts as supported.
    """
    supported = {
        "offsets-for-times": "True",
        "cluster-id": "True",
        "create-topics": "True",
        "describe-acls": "True",
        "describe-configs": "True",
        "idempotent-producer": "True",
    }
    flags = [part for feature, value in supported.items() for part in (f"--{feature}-supported", value)]
    expected = ["--num-cluster-nodes", "1", "--expect-record-too-large-exception", "False"]
    where = ["--bootstrap-server", server.bootstrap, "--topic", name]
    program = programs.start("ClientCompatibilityTest", *where, *expected, *flags)
    program.wait()
    assert "SUCCESS" in program.output.read_text()


def test_every_value_that_the_verifiable_producer_saw_acknowledged_is_there(
    server: Server, helper: Peer, programs: Programs, name: str
) -> None:
    helper.create(name, 3)
    where = ("--bootstrap-server", server.bootstrap, "--topic", name)
    events = programs.run("VerifiableProducer", *where, "--max-messages", "2000", "--acks", "-1", "--value-prefix", "7")
    sent = {(one["partition"], one["offset"]): one["value"] for one in events if one["name"] == "producer_send_success"}
    assert len(sent) == 2000
    assert events[-1]["acked"] == 2000
    found = helper.consume(name, [0, 1, 2], 2000)
    assert {where: (record.value or b"").decode() for where, record in found.items()} == sent


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_verifiable_consumers_hand_partitions_on_without_a_gap(
    server: Server, helper: Peer, programs: Programs, name: str, protocol: str
) -> None:
    """Two members; one leaves. What each reports as consumed goes on where the last commit of the partition was."""
    helper.create(name, 4)
    helper.produce(name, plain(400, partitions=4))
    common = ("--bootstrap-server", server.bootstrap, "--topic", name, "--group-id", name, "--reset-policy", "earliest")
    options = (*common, "--group-protocol", protocol, "--verbose")
    first = programs.start("VerifiableConsumer", *options)
    _await(first, lambda: _consumed([first]) == {partition: set(range(100)) for partition in range(4)})
    second = programs.start("VerifiableConsumer", *options)
    _await(second, lambda: _assigned(second) != set() and _assigned(first).isdisjoint(_assigned(second)))
    assert len(_assigned(first) | _assigned(second)) == 4
    first.stop()
    assert first.named("shutdown_complete")
    _await(second, lambda: len(_assigned(second)) == 4)
    helper.produce(name, plain(400, partitions=4, start=400))
    _await(
        second, lambda: all(set(range(100, 200)) <= _consumed([second]).get(partition, set()) for partition in range(4))
    )
    second.stop()
    assert _consumed([first, second]) == {partition: set(range(200)) for partition in range(4)}
    told = Counter(
        (each["partition"], each["minOffset"])
        for event in second.named("records_consumed")
        for each in event["partitions"]
    )
    assert max(told.values()) == 1, "a record was delivered again though it was committed"
    assert helper.ask("committed", group=name, topic=name) == {
        "offsets": {str(partition): 200 for partition in range(4)}
    }


def test_a_static_verifiable_consumer_comes_back_to_its_partitions(
    server: Server, helper: Peer, programs: Programs, name: str
) -> None:
    helper.create(name, 2)
    common = ("--bootstrap-server", server.bootstrap, "--topic", name, "--group-id", name, "--reset-policy", "earliest")
    options = (*common, "--session-timeout", "30000")
    first = programs.start("VerifiableConsumer", *options, "--group-instance-id", "a")
    other = programs.start("VerifiableConsumer", *options, "--group-instance-id", "b")
    _await(first, lambda: len(_assigned(first)) == 1)
    _await(other, lambda: len(_assigned(other)) == 1)
    changes = len(other.named("partitions_assigned"))
    owned = _assigned(first)
    first.stop()
    again = programs.start("VerifiableConsumer", *options, "--group-instance-id", "a")
    _await(again, lambda: _assigned(again) == owned)
    assert len(other.named("partitions_assigned")) == changes, "the other member was disturbed"


def test_the_message_copier_copies_each_record_once_though_it_aborts_and_is_killed(
    server: Server, helper: Peer, programs: Programs, name: str
) -> None:
    """Exactly once, as Apache's system test shows it: random aborts, a copier that dies, and one that goes on."""
    source, target = f"{name}-in", f"{name}-out"
    helper.create(source, 1)
    helper.create(target, 1)
    helper.produce(source, plain(3000))
    options = (
        *(
            "--input-topic",
            source,
            "--input-partition",
            "0",
            "--output-topic",
            target,
            "--broker-list",
            server.bootstrap,
        ),
        *("--consumer-group", name, "--transactional-id", name, "--transaction-size", "50", "--use-group-metadata"),
        # A copier asks for its position before it fences the one before it: offsets in an open transaction of a dead
        # one have to end by themselves, sooner than the consumer's patience of a minute does.
        *("--transaction-timeout", "5000"),
    )
    killed = programs.start("TransactionalMessageCopier", *options, "--enable-random-aborts")
    _await(killed, lambda: any(int(event.get("totalProcessed", 0)) > 0 for event in killed.events))
    killed.process.kill()
    killed.process.wait()
    events = programs.run("TransactionalMessageCopier", *options, "--enable-random-aborts")
    assert int(events[-1]["remaining"]) == 0
    assert _committed(server, target, 3000) == [f"value-{number}".encode() for number in range(3000)]
    assert helper.ask("committed", group=name, topic=source) == {"offsets": {"0": 3000}}


def test_copiers_in_one_group_copy_each_record_once(
    server: Server, helper: Peer, programs: Programs, name: str
) -> None:
    """Two copiers of one group, of which one leaves: the generation in their commits keeps them apart."""
    source, target = f"{name}-in", f"{name}-out"
    helper.create(source, 2)
    helper.create(target, 2)
    helper.produce(source, plain(2000, partitions=2))
    options = (
        *(
            "--input-topic",
            source,
            "--input-partition",
            "-1",
            "--output-topic",
            target,
            "--broker-list",
            server.bootstrap,
        ),
        *("--consumer-group", name, "--transaction-size", "50", "--use-group-metadata", "--group-mode"),
    )
    copiers = [
        programs.start("TransactionalMessageCopier", *options, "--transactional-id", f"{name}-{number}")
        for number in range(2)
    ]
    for copier in copiers:
        copier.wait()
    assert Counter(_committed(server, target, 2000)) == Counter(f"value-{number}".encode() for number in range(2000))


def test_verifiable_share_consumers_take_each_record_once(
    server: Server, helper: Peer, programs: Programs, name: str
) -> None:
    helper.create(name, 2)
    common = ("--bootstrap-server", server.bootstrap, "--topic", name, "--group-id", name)
    options = (*common, "--offset-reset-strategy", "earliest", "--acknowledgement-mode", "sync", "--verbose")
    members = [programs.start("VerifiableShareConsumer", *options) for _ in range(2)]
    for member in members:
        _await_event(member, "offset_reset_strategy_set")
    helper.produce(name, plain(600, partitions=2))

    def acknowledged() -> Counter[tuple[int, int]]:
        return Counter(
            (each["partition"], offset)
            for member in members
            for event in member.named("offsets_acknowledged")
            for each in event["partitions"]
            for offset in each["offsets"]
        )

    _await(members[0], lambda: sum(acknowledged().values()) >= 600)
    for member in members:
        member.stop()
    assert acknowledged() == Counter({(partition, offset): 1 for partition in range(2) for offset in range(300)})


def _await(program: Program, holds: Callable[[], bool]) -> None:
    """Wait until it holds. The program must go on running meanwhile."""
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        said = program.output.read_text(errors="replace")[-2000:]
        assert program.process.poll() is None, f"{program.name} ended with {program.process.returncode}\n{said}"
        assert time.monotonic() < deadline, f"{program.name} did not come that far\n{said}"
        time.sleep(0.05)


def _await_event(program: Program, name: str) -> None:
    _await(program, lambda: bool(program.named(name)))


def _assigned(program: Program) -> set[int]:
    """The partitions that a consumer has by what it said last."""
    held: set[int] = set()
    for event in program.events:
        partitions = {each["partition"] for each in event.get("partitions", ())}
        if event["name"] == "partitions_assigned":
            held |= partitions
        elif event["name"] == "partitions_revoked":
            held -= partitions
    return held


def _consumed(programs: Sequence[Program]) -> dict[int, set[int]]:
    """partition -> offsets that these consumers together say they consumed"""
    found: dict[int, set[int]] = {}
    for program in programs:
        for event in program.named("record_data"):
            found.setdefault(event["partition"], set()).add(event["offset"])
    return found


def _committed(server: Server, topic: str, count: int) -> list[bytes | None]:
    """The values that a reader of committed records sees, partition by partition, and nothing behind them."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": topic,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        found: dict[tuple[int, int], bytes | None] = {}
        at_end: set[int | None] = set()
        deadline = time.monotonic() + TIMEOUT_S
        while len(at_end) < len(partitions) and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error():
                at_end.add(message.partition())
            else:
                found[message.partition() or 0, message.offset() or 0] = message.value()
        assert len(found) == count
        return [found[where] for where in sorted(found)]
    finally:
        consumer.close()
