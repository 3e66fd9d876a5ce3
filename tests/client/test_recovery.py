"""A node that goes and comes back; Ctrl-C; a fork."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import ottla
from ottla.client import Admin, Consumer, Producer, TopicPartition
from tests.client.conftest import eventually
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


def run(program: str) -> subprocess.Popen[str]:
    source = textwrap.dedent(program)
    return subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_ctrl_c_ends_a_poll_at_once() -> None:
    with ottla.Node() as node, Admin(node.bootstrap_servers) as admin:
        admin.create_topic("t", 1)
        process = run(f"""
            from ottla.client import Consumer, TopicPartition
            consumer = Consumer("{node.bootstrap_servers}")
            consumer.assign([TopicPartition("t", 0)])
            consumer.poll(1)
            print("polling", flush=True)
            try:
                consumer.poll(60)
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            consumer.close()
            """)
        assert process.stdout is not None
        assert process.stdout.readline() == "polling\n"
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=10)
        # The signal may come a moment before the poll has begun; then it ends the program there.
        assert out == "interrupted\n" or "KeyboardInterrupt" in error


def test_a_fork_makes_clients_of_its_own_and_refuses_its_parents() -> None:
    with ottla.Node() as node:
        process = run(f"""
            import os
            from ottla.client import Admin, Consumer, OttlaError, Producer
            parent = Admin("{node.bootstrap_servers}")
            parent.create_topic("t", 1)
            producer = Producer("{node.bootstrap_servers}")
            producer.send("t", b"v").result(10)
            consumer = Consumer("{node.bootstrap_servers}")
            child = os.fork()
            if child == 0:
                for work in (parent.list_topics, lambda: producer.send("t", b"v"), consumer.poll):
                    try:
                        work()
                    except OttlaError as error:
                        print("refused" if "forked" in str(error) else error, flush=True)
                with Admin("{node.bootstrap_servers}") as own:
                    print(own.list_topics()[0].name, flush=True)
                os._exit(0)
            os.waitpid(child, 0)
            print(parent.list_topics()[0].name, flush=True)
            for client in (parent, producer, consumer):
                client.close()
            """)
        out, error = process.communicate(timeout=20)
        assert out.split() == ["refused", "refused", "refused", "t", "t"], error
        assert os.getpid() != process.pid
