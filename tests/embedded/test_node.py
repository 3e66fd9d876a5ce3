"""The life of a node in this process: many of them, notebooks, asyncio, forks, Ctrl-C, the end of the program."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import ottla
from ottla.client import Admin, AsyncConsumer, AsyncProducer, Consumer, OttlaError, Producer, TopicPartition
from ottla.wire.api.metadata import MetadataRequest
from tests.broker.wire_client import WireClient
from tests.client.conftest import eventually
from tests.embedded.conftest import values

_NODES = 100


def open_files() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


def use(node: ottla.Node) -> None:
    node.create_topic("t")
    with (
        Producer(node.bootstrap_servers, linger_ms=0) as producer,
        Consumer(node.bootstrap_servers, auto_offset_reset="earliest") as consumer,
    ):
        producer.send("t", b"v").result(30)
        consumer.assign([TopicPartition("t", 0)])
        assert values(consumer, 1) == [b"v"]


def test_the_controller_is_shown_where_it_listens(tmp_path: Path) -> None:
    """Before and after a restart, which may bring another port."""
    with ottla.Node(tmp_path) as node, Admin(node.bootstrap_servers) as admin:
        for _ in range(2):
            [address] = admin.describe_quorum().endpoints[1]
            host, _, port = address.removeprefix("CONTROLLER://").rpartition(":")
            with socket.create_connection((host, int(port)), 10):
                pass
            assert int(port) != 0
            node.restart()


def test_a_hundred_nodes_one_after_another_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with ottla.Node() as node:
        use(node)
    threads, files = threading.active_count(), open_files()
    for _ in range(_NODES):
        with ottla.Node() as node:
            use(node)
    # The last connections are closed a turn of the clients' loop later; older tests' threads may still be ending.
    # A thread or file of another test may come between; what each node left would be a hundred.
    more = _NODES // 10

    def is_nothing_left() -> bool:
        return threading.active_count() <= threads + more and open_files() <= files + more

    eventually(is_nothing_left, 30)
    assert os.listdir(tmp_path) == []


def test_many_nodes_at_once_are_clusters_of_their_own() -> None:
    nodes = [ottla.Node().start() for _ in range(5)]
    try:
        assert len({node.bootstrap_servers for node in nodes}) == 5
        for number, node in enumerate(nodes):
            node.create_topic(f"only-{number}")
        for number, node in enumerate(nodes):
            with WireClient(node.bootstrap_servers) as client:
                assert [each.name for each in client.ask(MetadataRequest(topics=None), 12).topics] == [f"only-{number}"]
    finally:
        for node in nodes:
            node.stop()


def test_a_temporary_node_keeps_its_records_over_a_restart(
    node: ottla.Node, ottla_topic: str, producer: Producer, reader: Consumer
) -> None:
    producer.send(ottla_topic, b"kept").result(30)
    address = node.bootstrap_servers
    node.restart()
    assert node.bootstrap_servers == address
    assert values(reader, 1) == [b"kept"]


def test_a_node_serves_clients_of_a_running_asyncio_loop() -> None:
    async def work() -> bytes | None:
        # A node started and stopped from a coroutine, as in a notebook: it has a thread and a loop of its own.
        with ottla.Node() as node:
            node.create_topic("t")
            async with (
                AsyncProducer(node.bootstrap_servers) as producer,
                AsyncConsumer(node.bootstrap_servers, auto_offset_reset="earliest") as consumer,
            ):
                await (await producer.send("t", b"v"))
                consumer.assign([TopicPartition("t", 0)])
                while not (records := await consumer.poll(1)):
                    pass
                value: bytes | None = records[0].value
                return value

    assert asyncio.run(work()) == b"v"


def test_a_fork_leaves_the_parents_node_alone() -> None:
    with ottla.Node() as node:
        child = os.fork()
        if child == 0:
            # What a forked worker does at its end: every `with` of the parent that it stands in is left.
            node.stop()
            os._exit(0 if os.path.isdir(node.data) else 1)
        assert os.waitpid(child, 0)[1] == 0
        use(node)


def test_what_a_child_forked_before_it_starts_is_its_own() -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with ottla.Node() as node, WireClient(node.bootstrap_servers) as client:
            os.write(writer, b"%d" % len(client.ask(MetadataRequest(topics=[]), 9).brokers))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        assert pipe.read() == "1"
    assert os.waitpid(child, 0)[1] == 0


NOTEBOOK = """
import os, sys, tempfile
import ottla
node = ottla.Node().start()
node.create_topic("t")
print(node.data, flush=True)
{end}
"""


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("", 0),
        ("raise SystemExit(3)", 3),
        ("import signal; signal.raise_signal(signal.SIGINT)", -signal.SIGINT),
    ],
    ids=["end", "exit", "Ctrl-C"],
)
def test_a_program_that_never_stops_its_node_ends_and_leaves_no_directory(end: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NOTEBOOK.format(end=end)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code, done.stderr
    assert "Exception in thread" not in done.stderr, done.stderr
    assert not os.path.exists(done.stdout.strip())


def test_a_program_that_never_stops_its_node_leaves_its_own_directory_clean(tmp_path: Path) -> None:
    program = f"import ottla; ottla.Node({str(tmp_path)!r}).start().create_topic('t', 3)"
    subprocess.run([sys.executable, "-c", program], timeout=60, check=True)
    assert (tmp_path / ".kafka_cleanshutdown").exists()


#: How many modules of ours a lone node may import until it serves; a module that every node needs may raise it.
STARTED_MODULES_MAX = 226


def test_a_start_imports_nothing_that_a_node_has_no_use_for() -> None:
    program = "import sys, ottla; ottla.Node().start().stop(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.split())
    useless = {"argparse", "click", "email", "importlib.metadata", "numpy", "pandas", "pyarrow", "pyspark", "rich"}
    ours = {"ottla.client", "ottla.embedded.faults", "ottla.sim", "ottla.cli", "ottla.spark", "ottla.testing"}
    # What a node imports when somebody first needs it.
    later = {
        "ottla.group",
        "ottla.txn",
        "ottla.share.partition",
        "ottla.broker.coordinators.driver",
        "ottla.broker.share.persister",
    }
    later |= {"ottla.controller.create_topics", "ottla.controller.scram", "ottla.log.cleaning.job"}
    later |= {"ottla.kernel.re2.pattern", "ottla.share.session", "ottla.wire.api.fetch", "ottla.wire.api.api_versions"}
    # What only a node among others needs.
    later |= {"ottla.raft.others", "ottla.replica.followed", "ottla.replica.follower", "ottla.net.outbound"}
    later |= {"ottla.broker.partitions.fetcher", "ottla.broker.partitions.isr_changes", "ottla.broker.controller_node"}
    later |= {"ottla.wire.api.fetch_snapshot", "ottla.wire.api.broker_heartbeat", "ottla.broker.controllers.envelope"}
    handlers = {name for name in loaded if name.startswith("ottla.broker.handlers.")}
    assert loaded & (useless | ours | later) | handlers == set()
    assert "ottla.broker.node" in loaded
    # Each takes a third of a millisecond. A part that only some nodes need is a `LazyModule`; one that all need may
    # raise the bound.
    assert len([name for name in loaded if name.startswith("ottla")]) <= STARTED_MODULES_MAX


def test_a_start_compiles_few_encoders_and_decodes_only_what_it_reads() -> None:
    program = """if True:
        import ottla
        from ottla.wire import compile as compiling
        ottla.Node().start().stop()
        for compiled in (compiling._encoders, compiling._decoders):
            print(*sorted(cls.__name__ for cls, _ in compiled))
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    encoders, decoders = (line.split() for line in done.stdout.split("\n")[:2])
    # Several features have a record each. Of the others a start writes one or two.
    assert encoders == ["FeatureLevelRecord"]
    read = {"FeatureLevelRecord", "KRaftVersionRecord", "SnapshotFooterRecord", "SnapshotHeaderRecord", "VotersRecord"}
    assert set(decoders) <= read


def test_a_node_that_has_served_for_a_while_has_imported_every_handler() -> None:
    program = """if True:
        from ottla.broker import serve
        from ottla.broker.call.handler import REGISTERED
        from ottla.broker.dispatch.dispatch import HANDLERS
        before = len(REGISTERED)
        serve._load()
        print(before, REGISTERED.keys() == HANDLERS.keys())
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "0 True\n"


def test_ctrl_c_during_the_start_leaves_no_node_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    threads = threading.active_count()
    wait = threading.Event.wait

    def pressed(event: threading.Event, timeout: float | None = None) -> bool:
        monkeypatch.setattr(threading.Event, "wait", wait)
        signal.raise_signal(signal.SIGINT)
        return wait(event, timeout)

    monkeypatch.setattr(threading.Event, "wait", pressed)
    node = ottla.Node()
    # `Thread.start` waits for an event as well; it is not to be disturbed.
    with pytest.raises(KeyboardInterrupt):
        node.start()
    eventually(lambda: threading.active_count() <= threads, 30)
    assert os.listdir(tmp_path) == []


def test_a_node_that_cannot_start_says_why_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    threads, files = threading.active_count(), open_files()
    with ottla.Node() as first:
        taken = int(first.bootstrap_servers.rpartition(":")[2])
        with pytest.raises(OttlaError, match="is taken"):
            ottla.Node(port=taken).start()
    with pytest.raises(OttlaError, match=r"invalid value for num\.partitions: many \(expected a whole number"):
        ottla.Node(settings={"num.partitions": "many"}).start()
    eventually(lambda: threading.active_count() <= threads and open_files() <= files, 30)
    assert os.listdir(tmp_path) == []


def test_a_node_that_does_not_run_says_so() -> None:
    node = ottla.Node()
    for ask in (lambda: node.bootstrap_servers, lambda: node.create_topic("t"), node.faults.drop_connections):
        with pytest.raises(OttlaError, match="not running"):
            ask()


def test_a_node_that_has_stopped_by_itself_says_why() -> None:
    with ottla.Node() as node:
        inner = node._running()
        node._on_loop(lambda: inner.on_failure("the disk is full"))
        thread = node._thread
        assert thread is not None
        thread.join(30)
        for use in (lambda: node.bootstrap_servers, lambda: node.create_topic("t")):
            with pytest.raises(OttlaError, match="the node stopped: the disk is full"):
                use()
        assert repr(node) == "<ottla.Node, not running>"
        node.restart().create_topic("t")


def test_a_topic_that_is_not_created_in_time_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    with ottla.Node() as node:
        monkeypatch.setattr("ottla.embedded.node._CALL_SECONDS_MAX", 0.01)
        monkeypatch.setattr(node._running(), "create_topics", lambda topics, done: None)
        monkeypatch.setattr(node, "_on_loop", lambda work: work())
        with pytest.raises(OttlaError, match=r"the topic t was not created within 0\.01 seconds"):
            node.create_topic("t")


def test_settings_in_the_place_of_the_directory_are_refused() -> None:
    with pytest.raises(TypeError, match="data is a directory, a str or a Path, not "):
        ottla.Node({"num.partitions": 3})  # type: ignore[arg-type]
