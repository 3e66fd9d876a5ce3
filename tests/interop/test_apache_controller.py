"""A broker of ours under Apache Kafka's controller: it registers, lives, forwards its clients' changes, and stops."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.client import Admin, AsyncAdmin, Consumer, Producer
from ottla.kernel.error import ErrorCode, KafkaError
from tests.interop.server import Kind, Server, apache, free_ports, ottla

#: Of the controller's session; a broker's heartbeat has a third of it.
SESSION_MS = 3_000
WAIT_S = 60.0

pytestmark = pytest.mark.interop


class Role(Server):
    """A node with one role. The controller's port is chosen by who makes both."""

    controller_port: int = 0

    def _properties(self, controller_port: int) -> str:
        is_broker = self.settings["process.roles"] == "broker"
        address = (
            f"PLAINTEXT://127.0.0.1:{self.port}" if is_broker else f"CONTROLLER://127.0.0.1:{self.controller_port}"
        )
        given = {
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.controller_port}",
            "listeners": address,
            "log.dirs": str(self.log_dir),
            "broker.heartbeat.interval.ms": str(SESSION_MS // 6),
            "broker.session.timeout.ms": str(SESSION_MS),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        }
        return "".join(f"{name}={value}\n" for name, value in {**given, **self.settings}.items())


def until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Role]:
    server = Role(apache(), tmp_path_factory.mktemp("controller"), {"process.roles": "controller", "node.id": "9"})
    (server.controller_port,) = free_ports(1)
    server.format()
    server.launch()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def broker(controller: Role, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Role]:
    kind = ottla()
    joins = Kind(kind.name, tuple(each for each in kind.format if each != "--standalone"), kind.start)
    server = Role(joins, tmp_path_factory.mktemp("broker"), {"process.roles": "broker", "node.id": "1"})
    server.controller_port = controller.controller_port
    server.start()
    yield server
    server.stop()


def records(controller: Role, name: str) -> list[str]:
    """The lines of Apache's dump of the controller's metadata log that tell of one kind of record."""
    (log,) = Path(controller.log_dir, "__cluster_metadata-0").glob("*0.log")
    dump = [
        *apache().start[:-2],
        "org.apache.kafka.tools.DumpLogSegments",
        "--cluster-metadata-decoder",
        "--files",
        str(log),
    ]
    text = subprocess.run(dump, capture_output=True, text=True, timeout=WAIT_S, check=True).stdout
    return [line for line in text.splitlines() if f'"type":"{name}"' in line]


def test_it_registers_and_stays(controller: Role, broker: Role) -> None:
    with Admin(broker.bootstrap) as admin:
        assert [each.id for each in admin.describe_cluster().nodes] == [1]
        time.sleep(3 * SESSION_MS / 1000)
        assert [each.id for each in admin.describe_cluster().nodes] == [1]
    assert len(records(controller, "REGISTER_BROKER_RECORD")) == 1
    # Unfenced once, and fenced never.
    changes = records(controller, "BROKER_REGISTRATION_CHANGE_RECORD")
    assert ['"fenced":-1' in each for each in changes] == [True]


def test_changes_go_to_apache_s_controller_with_who_asked(broker: Role) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic("forwarded", partitions=3)
        with pytest.raises(KafkaError) as caught:
            admin.create_topic("forwarded")
        assert caught.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert caught.value.message == "Topic 'forwarded' already exists."
        assert admin.create_partitions({"forwarded": 5})

        def leaders() -> list[int]:
            described = admin.describe_topics(["forwarded"])["forwarded"]
            return [each.leader.id for each in described.partitions if each.leader is not None]

        # As under Apache's broker, the answer may come before the broker has followed the change.
        until(lambda: leaders() == [1] * 5, "the new partitions")
        admin.delete_topics(["forwarded"])


def test_records_and_groups_and_ids_work(broker: Role) -> None:
    # Idempotent: its id comes from a block that Apache's controller gives out.
    with Producer(broker.bootstrap) as producer:
        told = [producer.send("written", b"%d" % index, partition=0) for index in range(10)]
        producer.flush()
        assert [each.result().offset for each in told] == list(range(10))
    with Consumer(broker.bootstrap, group_id="group", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["written"])
        found: list[bytes | None] = []

        def all_came() -> bool:
            found.extend(each.value for each in consumer.poll(0.5))
            return len(found) >= 10

        until(all_came, "records")
        assert found == [b"%d" % index for index in range(10)]


def test_a_broker_that_stopped_cleanly_and_one_that_was_killed_come_back(controller: Role, broker: Role) -> None:
    broker.restart()
    registrations = records(controller, "REGISTER_BROKER_RECORD")
    assert len(registrations) == 2
    assert any('"inControlledShutdown":1' in each for each in records(controller, "BROKER_REGISTRATION_CHANGE_RECORD"))
    broker.kill()
    broker.start()
    with Admin(broker.bootstrap) as admin:
        assert [each.id for each in admin.describe_cluster().nodes] == [1]
    assert len(records(controller, "REGISTER_BROKER_RECORD")) == 3


def test_a_broker_lives_through_a_restart_of_the_controller(controller: Role, broker: Role) -> None:
    controller.kill()
    controller.launch()

    async def create() -> bool:
        async with AsyncAdmin(broker.bootstrap, request_timeout_ms=30_000) as admin:
            try:
                await admin.create_topic("after")
            except KafkaError as error:
                return error.code == ErrorCode.TOPIC_ALREADY_EXISTS
            return True

    until(lambda: asyncio.run(create()), "a topic under the new controller")
    assert len(records(controller, "REGISTER_BROKER_RECORD")) == 3
