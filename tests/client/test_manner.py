"""How the client behaves in the programs of others: types, uvloop, Ctrl-C, threads, a program that just ends."""

import asyncio
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import uvloop

import ottla
from ottla.client import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    ClientClosed,
    Consumer,
    NotReachable,
    OffsetSpec,
    OttlaError,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from ottla.client.connection.cluster import Cluster
from ottla.settings.client.client import ClientSettings
from tests.client.conftest import ctrl_c, offsets
from tests.serde import typed_sample


def test_a_typed_program_runs_as_its_types_say() -> None:
    with ottla.Node() as node:
        assert typed_sample.synchronous(node.bootstrap_servers) == 0
        assert asyncio.run(typed_sample.asynchronous(node.bootstrap_servers)) == [0, 1]
        assert typed_sample.generic(node.bootstrap_servers) == [{"n": 5}, {"n": 6}]


def test_the_clients_work_under_uvloop_and_asyncio_alike() -> None:
    async def run(bootstrap: str, topic: str) -> list[bytes]:
        async with AsyncAdmin(bootstrap) as admin, AsyncProducer(bootstrap) as producer:
            await admin.create_topic(topic, 1)
            for number in range(50):
                await producer.send(topic, b"%d" % number)
            await producer.flush()
        found: list[bytes] = []
        async with AsyncConsumer(bootstrap, group_id=topic, auto_offset_reset="earliest") as consumer:
            consumer.subscribe([topic])
            async for record in consumer:
                found.append(record.value)
                if len(found) == 50:
                    await consumer.commit()
                    assert offsets(await consumer.committed(consumer.assignment())) == {TopicPartition(topic, 0): 50}
                    return found
        return found

    wanted = [b"%d" % number for number in range(50)]
    with ottla.Node() as node:
        assert uvloop.run(run(node.bootstrap_servers, "by-uvloop")) == wanted
        assert asyncio.run(run(node.bootstrap_servers, "by-asyncio")) == wanted


def test_each_thread_may_have_its_own_clients_and_all_may_share_a_producer() -> None:
    with ottla.Node() as node, Admin(node.bootstrap_servers) as admin, Producer(node.bootstrap_servers) as producer:
        admin.create_topic("t", 4)
        failed: list[BaseException] = []

        def work(partition: int) -> None:
            try:
                for number in range(100):
                    producer.send("t", b"%d" % number, partition=partition)
                producer.flush()
                with Consumer(node.bootstrap_servers, auto_offset_reset="earliest") as consumer:
                    consumer.assign([TopicPartition("t", partition)])
                    found: list[bytes] = []
                    while len(found) < 100:
                        found += [record.value for record in consumer.poll(10)]
                    assert found == [b"%d" % number for number in range(100)]
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(partition,)) for partition in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert not failed


@pytest.fixture
def silent() -> Iterator[str]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def _produce(bootstrap: str) -> None:
    producer = Producer(bootstrap)
    try:
        producer.send("t", b"v")
    finally:
        producer.close(flush=False)


def _administer(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        admin.list_topics()


def _consume(bootstrap: str) -> None:
    with Consumer(bootstrap, group_id="g") as consumer:
        consumer.subscribe(["t"])
        next(iter(consumer))


def _share(bootstrap: str) -> None:
    with ShareConsumer(bootstrap, group_id="g") as consumer:
        consumer.subscribe(["t"])
        consumer.poll(60)


@pytest.mark.parametrize("wait", [_produce, _administer, _consume, _share])
def test_ctrl_c_ends_whatever_waits_for_a_broker_at_once(wait: Callable[[str], None], silent: str) -> None:
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), ctrl_c(0.3):
        wait(silent)
    # Each would wait for ten seconds at least, for the connection alone.
    assert time.monotonic() - began < 8


def test_ctrl_c_ends_a_flush_at_once() -> None:
    with ottla.Node() as node:
        producer = Producer(node.bootstrap_servers)
        producer.send("t", b"v").result(30)
        node.stop()
        producer.send("t", b"v")
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt), ctrl_c(0.3):
            producer.flush()
        producer.close(flush=False)
        assert time.monotonic() - began < 20


_UNTIDY = """
import sys
from ottla.client import Admin, Consumer, Producer
admin = Admin(sys.argv[1])
admin.create_topic("t", 1)
producer = Producer(sys.argv[1])
producer.send("t", b"v").result(30)
consumer = Consumer(sys.argv[1], group_id="g", auto_offset_reset="earliest")
consumer.subscribe(["t"])
while not consumer.poll(1):
    pass
print("read")
"""


def test_a_program_that_closes_nothing_ends_quietly() -> None:
    with ottla.Node() as node:
        command = [sys.executable, "-c", _UNTIDY, node.bootstrap_servers]
        done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stdout, done.stderr) == (0, "read\n", "")


_LATE = """
import ctypes, signal
ctypes.pythonapi.Py_AtExit(ctypes.CDLL(None).pause)  # the process stays when Python has taken itself apart
signal.signal(signal.SIGALRM, signal.SIG_DFL)
signal.alarm(2)
"""


def test_a_client_does_nothing_once_python_has_gone() -> None:
    """On a busy machine a broker's answer came between the end of Python and that of the process: a SIGSEGV."""
    with ottla.Node() as node:
        command = [sys.executable, "-W", "default", "-c", _UNTIDY + _LATE, node.bootstrap_servers]
        done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGALRM, "read\n", "")


def test_a_client_says_at_the_end_of_the_program_that_it_has_ended_too() -> None:
    code = """
import atexit
late = lambda: admin.list_topics()
atexit.register(lambda: late())
from ottla.client import Admin
admin = Admin("127.0.0.1:1")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert "OttlaError: the program has ended, and its clients with it" in done.stderr


_ENDS = """
import gc, sys, threading
from ottla.client import Producer
producer = Producer(sys.argv[1], linger_ms=60_000, **{names})
{body}
"""


def _ends(bootstrap: str, body: str, **settings: object) -> subprocess.CompletedProcess[str]:
    """A program that sends records, which linger, and ends."""
    command = [sys.executable, "-W", "default", "-c", _ENDS.format(names=settings, body=body), bootstrap]
    return subprocess.run(command, capture_output=True, text=True, timeout=50)


def _stored(node: ottla.Node) -> int:
    with Admin(node.bootstrap_servers) as admin:
        return admin.list_offset(TopicPartition("t", 0), OffsetSpec.LATEST).offset


_THREE = "for number in range(3): producer.send('t', b'v')"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        pytest.param("", 0, id="the end of the program"),
        pytest.param("sys.exit(3)", 3, id="an exit"),
        pytest.param("raise SystemError('mine')", 1, id="an exception"),
        pytest.param(
            "threading.Thread(target=lambda: (threading.main_thread().join(), producer.send('t', b'v'))).start()",
            0,
            id="a thread that outlives the main thread",
        ),
    ],
)
def test_records_are_delivered_when_the_program_ends(body: str, code: int) -> None:
    with ottla.Node() as node:
        node.create_topic("t", 1)
        done = _ends(node.bootstrap_servers, f"{_THREE}\n{body}")
        assert done.returncode == code, done.stderr
        assert "delivered" not in done.stderr and "Warning" not in done.stderr
        assert _stored(node) == 3 + ("Thread" in body)


_LOOKS_UP = """
import atexit, sys, threading
sys.modules["uvloop"] = None  # asyncio looks up names in helper threads, which end before the program does
from ottla.client.connection.loop_thread import loop_thread
thread = loop_thread()
def look_up():
    print(thread.run(thread.loop.getaddrinfo("localhost", 9092))[0][4][1], flush=True)
look_up()
atexit.register(look_up)
threading.Thread(target=lambda: (threading.main_thread().join(), look_up())).start()
"""


def test_names_are_looked_up_until_the_program_has_ended() -> None:
    done = subprocess.run([sys.executable, "-c", _LOOKS_UP], capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stdout, done.stderr) == (0, "9092\n" * 3, "")


def test_a_dropped_producer_delivers_its_records_and_closes() -> None:
    body = f"{_THREE}\ndel producer\ngc.collect()"
    with ottla.Node() as node:
        node.create_topic("t", 1)
        done = _ends(node.bootstrap_servers, body)
        assert done.returncode == 0
        assert "ResourceWarning: a Producer was dropped before it was closed" in done.stderr
        assert _stored(node) == 3


def test_a_program_that_ends_without_a_broker_waits_a_little_and_counts_what_is_lost() -> None:
    with ottla.Node() as node:
        node.create_topic("t", 1)
        body = f"producer.send('t', b'v'); producer.flush(); print('now', flush=True); input()\n{_THREE}"
        command = [sys.executable, "-c", _ENDS.format(names={}, body=body), node.bootstrap_servers]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as program:
            assert program.stdout is not None
            assert program.stdout.readline() == "now\n"
            node.stop()
            began = time.monotonic()
            _, said = program.communicate("\n", 50)
    assert 4 < time.monotonic() - began < 20
    assert "3 records were not delivered when the program ended: close or flush the producer" in said


def test_a_transaction_that_is_open_when_the_program_ends_is_aborted() -> None:
    body = f"producer.init_transactions()\nproducer.begin_transaction()\n{_THREE}\nproducer.flush()"
    with ottla.Node() as node:
        node.create_topic("t", 1)
        done = _ends(node.bootstrap_servers, body, transactional_id="x")
        assert done.returncode == 0
        with Admin(node.bootstrap_servers) as admin:
            assert [each.state for each in admin.list_transactions()] in (["PrepareAbort"], ["CompleteAbort"])


_ENDS_ASYNC = """
import asyncio, sys
from ottla.client import AsyncProducer

async def main():
    producer = AsyncProducer(sys.argv[1], linger_ms=60_000)
    for number in range(3):
        await producer.send("t", b"v")

asyncio.run(main())
"""


def test_an_asynchronous_producer_that_is_not_closed_counts_what_is_lost() -> None:
    with ottla.Node() as node:
        node.create_topic("t", 1)
        command = [sys.executable, "-c", _ENDS_ASYNC, node.bootstrap_servers]
        done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0
    assert "3 records were not delivered" in done.stderr


def test_an_exception_in_the_body_of_a_producer_counts_what_is_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    with ottla.Node() as node:
        node.create_topic("t", 1)
        with suppress(RuntimeError), Producer(node.bootstrap_servers, linger_ms=60_000) as producer:
            producer.send("t", b"v")
            raise RuntimeError("mine")
        assert "1 record was not sent: the producer was closed without a flush" in caplog.text


def test_errors_say_what_to_do() -> None:
    said = []
    for wrong in (
        lambda: Producer(),
        lambda: Producer("localhost"),
        lambda: Producer("127.0.0.1:1", acks="most"),
        lambda: Producer("127.0.0.1:1", bootstrap_server="127.0.0.1:1"),  # type: ignore[call-arg]
        lambda: Consumer("127.0.0.1:1", group_idd="g"),  # type: ignore[call-arg]
        lambda: Consumer({"bootstrap.servers": "127.0.0.1:1", "auto.offset.rest": "earliest"}),
        lambda: Producer("127.0.0.1:1", compression_type="lz5"),
    ):
        with pytest.raises(OttlaError) as error:
            wrong()
        said.append(str(error.value))
    assert "for example 127.0.0.1:9092" in said[0]
    assert "host:port" in said[1]
    assert "0, 1 or all" in said[2]
    assert "did you mean bootstrap.servers?" in said[3]
    assert "did you mean group.id?" in said[4]
    assert "did you mean auto.offset.reset?" in said[5]
    assert "one of none, gzip, snappy, lz4, zstd" in said[6]


def test_a_broker_that_is_not_there_is_named_with_the_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with Admin(f"127.0.0.1:{port}", default_api_timeout_ms=500) as admin, pytest.raises(NotReachable) as error:
        admin.list_topics()
    assert f"127.0.0.1:{port}" in str(error.value)
    assert "is a broker running there?" in str(error.value)


def test_a_port_that_speaks_no_tls_is_named_with_the_setting_to_look_at() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def reset() -> None:
            # As a broker's PLAINTEXT listener: what it reads is no request, so it hangs up.
            accepted, _ = listening.accept()
            with accepted:
                accepted.recv(10)
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        thread = threading.Thread(target=reset)
        thread.start()
        where = f"127.0.0.1:{listening.getsockname()[1]}"

        async def connect() -> None:
            cluster = Cluster(ClientSettings.read(where, {"security_protocol": "SSL"}))
            try:
                await cluster.any()
            finally:
                await cluster.close()

        with pytest.raises(NotReachable, match=r"security\.protocol"):
            asyncio.run(connect())
        thread.join()


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        (AsyncAdmin, lambda client: client.list_topics()),
        (AsyncProducer, lambda client: client.send("t", b"x")),
        (AsyncConsumer, lambda client: client.end_offsets([TopicPartition("t", 0)])),
    ],
    ids=["admin", "producer", "consumer"],
)
def test_an_asynchronous_client_is_closed_at_the_end_of_its_block(
    node: ottla.Node, kind: Any, call: Callable[[Any], Any]
) -> None:
    async def run() -> None:
        async with kind(node.bootstrap_servers) as client:
            pass
        with pytest.raises(ClientClosed):
            await call(client)

    asyncio.run(run())
