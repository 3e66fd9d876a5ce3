"""A node that goes and comes back; Ctrl-C; a fork."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import ottla
from ottla.client import (
    Admin,
    Consumer,
    ErrorCode,
    NewTopic,
    NotReachable,
    OttlaError,
    Producer,
    TopicPartition,
)
from ottla.wire.api import ApiKey
from ottla.wire.api.metadata import MetadataRequest, MetadataResponse
from tests.client.conftest import ctrl_c, eventually, offsets
from tests.interop.server import free_ports


def test_clients_go_on_when_the_node_comes_back(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    one = TopicPartition("t", 0)
    node = ottla.Node(tmp_path, port=port)
    node.start()
    with (
        Admin(node.bootstrap_servers) as admin,
        Producer(node.bootstrap_servers) as producer,
        Consumer(node.bootstrap_servers, auto_offset_reset="earliest") as consumer,
    ):
        try:
            admin.create_topic("t", 1)
            producer.send("t", b"before").result(30)
            consumer.assign([one])
            eventually(lambda: [record.value for record in consumer.poll(0.5)] == [b"before"])
        finally:
            node.stop()
        # With the broker away records wait; with it back they arrive, once each and in order.
        deliveries = [producer.send("t", b"%d" % n) for n in range(100)]
        assert consumer.poll(0.1) == []
        node = ottla.Node(tmp_path, port=port)
        node.start()
        try:
            assert [delivery.result(30).offset for delivery in deliveries] == list(range(1, 101))
            found: list[bytes] = []

            def all_there() -> bool:
                found.extend(record.value for record in consumer.poll(0.5))
                return len(found) >= 100

            eventually(all_there, 30)
            assert found == [b"%d" % n for n in range(100)]
        finally:
            producer.close()
            consumer.close()
            node.stop()


def test_ctrl_c_ends_a_poll_at_once() -> None:
    with ottla.Node() as node, Admin(node.bootstrap_servers) as admin, Consumer(node.bootstrap_servers) as consumer:
        admin.create_topic("t", 1)
        consumer.assign([TopicPartition("t", 0)])
        consumer.poll(0.1)
        begin = time.monotonic()
        with pytest.raises(KeyboardInterrupt), ctrl_c(0.2):
            consumer.poll(30)
        assert time.monotonic() - begin < 25
        assert consumer.poll(0.1) == [], "it goes on working"


def test_a_fork_makes_clients_of_its_own_and_refuses_its_parents() -> None:
    with (
        ottla.Node() as node,
        Admin(node.bootstrap_servers) as admin,
        Producer(node.bootstrap_servers) as producer,
        Consumer(node.bootstrap_servers) as consumer,
    ):
        admin.create_topic("t", 1)
        producer.send("t", b"v").result(30)
        consumer.assign([TopicPartition("t", 0)])
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            said = []
            works: list[Callable[[], object]] = [admin.list_topics, lambda: producer.send("t", b"v"), consumer.poll]
            for work in works:
                try:
                    work()
                except OttlaError as error:
                    said.append("refused" if "forked" in str(error) else str(error))
            with Admin(node.bootstrap_servers) as own:
                said.append(own.list_topics()[0].name)
            os.write(writer, " ".join(said).encode())
            # No exit handlers: they are the parent's.
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            assert pipe.read() == "refused refused refused t"
        assert os.waitpid(child, 0)[1] == 0
        assert admin.list_topics()[0].name == "t", "the parent's clients go on working"
        assert producer.send("t", b"v").result(30).offset == 1


def test_a_cluster_that_is_replaced_is_found_under_its_old_address(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    one = TopicPartition("t", 0)
    with ottla.Node(tmp_path / "old", port=port) as old:
        bootstrap = old.bootstrap_servers
        with Admin(bootstrap) as admin:
            admin.create_topic("t", 1)
        producer = Producer(bootstrap)
        consumer = Consumer(bootstrap, auto_offset_reset="earliest", group_id="g")
        for value in (b"a", b"b"):
            producer.send("t", value).result(30)
        consumer.assign([one])
        eventually(lambda: consumer.position(one) == 2 or consumer.poll(0.2) is None)
        consumer.commit()
    try:
        with ottla.Node(tmp_path / "new", port=port):
            with Admin(bootstrap) as admin:
                # The producer may have been quicker: what it asks for is created.
                _ = admin.create_topics([NewTopic("t", 1)]).errors
            assert producer.send("t", b"c").result(60).offset == 0
            found: list[bytes] = []

            def read() -> bool:
                found.extend(record.value for record in consumer.poll(0.5))
                return found == [b"c"]

            eventually(read, 30)
            consumer.commit()
            assert offsets(consumer.committed([one])) == {one: 1}
            producer.close()
            consumer.close()
    finally:
        producer.close(flush=False)
        consumer.close()


def test_a_cluster_that_has_moved_is_found_by_another_bootstrap_address(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = free_ports(2)
    bootstrap = f"127.0.0.1:{old},127.0.0.1:{new}"
    one = TopicPartition("t", 0)
    with ottla.Node(tmp_path, port=old), Admin(bootstrap) as admin:
        admin.create_topic("t", 1)
        producer = Producer(bootstrap)
        consumer = Consumer(bootstrap, auto_offset_reset="earliest")
        producer.send("t", b"a").result(30)
        consumer.assign([one])
        eventually(lambda: [record.value for record in consumer.poll(0.5)] == [b"a"])
    try:
        waiting = [producer.send("t", b"%d" % number) for number in range(10)]
        with ottla.Node(tmp_path, port=new):
            assert [delivery.result(60).offset for delivery in waiting] == list(range(1, 11))
            found: list[bytes] = []

            def read() -> bool:
                found.extend(record.value for record in consumer.poll(0.5))
                return found == [b"%d" % number for number in range(10)]

            eventually(read, 30)
            producer.close()
            consumer.close()
    finally:
        producer.close(flush=False)
        consumer.close()
    gone = [record for record in caplog.records if f":{old} cannot be reached" in record.getMessage()]
    assert len(gone) <= 3, "each client says it once"


def test_a_client_that_is_told_to_starts_again_from_its_bootstrap_servers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ottla.Node(tmp_path / "a") as first, ottla.Node(tmp_path / "b") as second:
        with Admin(second.bootstrap_servers) as admin:
            admin.create_topic("only-there", 1)
        with Admin(f"{first.bootstrap_servers},{second.bootstrap_servers}", client_id="moved") as admin:
            # Whichever cluster it met first: from now on that one sends everybody away.
            names = {topic.name for topic in admin.list_topics()}
            met = second if "only-there" in names else first
            connections = admin._async._cluster._connections
            before = set(connections.values())

            def away(request: MetadataRequest, version: int) -> MetadataResponse:
                return MetadataResponse(error_code=int(ErrorCode.REBOOTSTRAP_REQUIRED))

            met.faults.answer(ApiKey.METADATA, away, times=1)
            with pytest.raises(NotReachable):
                admin._thread.run(admin._async._cluster.update(["t"]))
            assert all(one.closed for one in before), "nothing of the old cluster is used again"
            assert admin.list_topics() is not None
    told = [record for record in caplog.records if "starting again from bootstrap.servers" in record.getMessage()]
    assert len(told) == 1
