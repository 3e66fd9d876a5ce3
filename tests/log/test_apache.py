"""Apache Kafka 4.3.1 as the referee: it writes and we read, we write and it reads, on the same directories."""

import contextlib
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.host.disk import HostDisk
from ottla.kernel.ids import TopicPartition
from ottla.log.directory.store import Store
from ottla.log.dump.dump_log import DumpOptions, dump
from ottla.log.log import Log, LogSettings
from ottla.log.producer.snapshot import decode
from ottla.wire.batch import NewRecord, build, read
from ottla.wire.codec import Codec
from tests.interop.server import free_ports
from tests.interop.toolchain import classpath, quick_jvm

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

_CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
_SETTINGS = LogSettings(segment_bytes=1 << 20)


def _java(*arguments: str, heap: str = "256m") -> list[str]:
    return ["java", *quick_jvm(heap), "-cp", classpath(), *arguments]


def _tool(*arguments: str) -> str:
    done = subprocess.run(
        _java("org.apache.kafka.tools.DumpLogSegments", *arguments), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class Apache:
    """One broker and controller in one, on a directory of its own."""

    def __init__(self, path: Path, **settings: str) -> None:
        self.path = path
        self.data = str(path / "data")
        self.port, self._controller = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None
        self._config = path / "server.properties"
        self._config.write_text(
            f"process.roles=broker,controller\nnode.id=1\nlog.dirs={self.data}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self._controller}\n"
            f"controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@127.0.0.1:{self._controller}\n"
            "offsets.topic.num.partitions=1\noffsets.topic.replication.factor=1\n"
            "transaction.state.log.num.partitions=1\ntransaction.state.log.replication.factor=1\n"
            "transaction.state.log.min.isr=1\ngroup.initial.rebalance.delay.ms=0\nlog.segment.bytes=1048576\n"
        )
        self.set(**settings)
        subprocess.run(
            _java("kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(self._config)),
            check=True,
            capture_output=True,
            timeout=60,
        )

    def set(self, **settings: str) -> None:
        """Add to the settings, with `_` for `.`; what is said last counts at the next start."""
        with open(self._config, "a") as file:
            file.writelines(f"{name.replace('_', '.')}={value}\n" for name, value in settings.items())

    def start(self) -> None:
        with open(self.path / "out.txt", "ab") as out:
            self._process = subprocess.Popen(
                _java("kafka.Kafka", str(self._config), heap="384m"), stdout=out, stderr=out
            )
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            assert self._process.poll() is None, (self.path / "out.txt").read_text()[-2000:]
            with contextlib.suppress(Exception):
                if self.admin().list_topics(timeout=2).brokers:
                    return
        raise AssertionError("Apache Kafka did not start within a minute")

    def admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": f"127.0.0.1:{self.port}", "log_level": 0})

    def producer(self, **settings: Any) -> Any:
        from confluent_kafka import Producer

        return Producer({"bootstrap.servers": f"127.0.0.1:{self.port}", "linger.ms": 5, **settings})

    def consume(self, topic: str, count: int) -> list[tuple[int, int, bytes | None, bytes | None]]:
        """(offset, timestamp, key, value) of the committed records, which must be `count`."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer
        from confluent_kafka import TopicPartition as Partition

        consumer = Consumer(
            {
                "bootstrap.servers": f"127.0.0.1:{self.port}",
                "group.id": "referee",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "check.crcs": True,
            }
        )
        consumer.assign([Partition(topic, 0, OFFSET_BEGINNING)])
        found: list[tuple[int, int, bytes | None, bytes | None]] = []
        deadline = time.monotonic() + 30
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.consume(500, timeout=0.5):
                assert message.error() is None, message.error()
                found.append((int(message.offset() or 0), message.timestamp()[1], message.key(), message.value()))
        consumer.close()
        return found

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(30)
            self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apache]:
    broker = Apache(tmp_path_factory.mktemp("apache"))
    try:
        yield broker
    finally:
        broker.kill()


def _store(apache: Apache) -> Store:
    return Store.open(
        HostDisk(), [apache.data], node_id=1, now_ms=int(time.time() * 1000), settings_of=lambda _: _SETTINGS
    )


def _records(log: Log) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """All data records but the aborted ones, as a consumer with read_committed sees them."""
    aborted = log.aborted(log.start_offset, log.end_offset)
    found = []
    offset = log.start_offset
    while offset < log.end_offset:
        for batch in read(log.read(offset, 1 << 20, end_offset=log.end_offset).bytes()):
            offset = batch.header.last_offset + 1
            gone = batch.header.is_transactional and any(
                each.producer_id == batch.header.producer_id
                and each.first_offset <= batch.header.base_offset <= each.last_offset
                for each in aborted
            )
            if not batch.header.is_control and not gone:
                found += [(each.offset, each.timestamp, each.key, each.value) for each in batch.records()]
    return found


def _produce(apache: Apache) -> dict[str, list[tuple[bytes | None, bytes]]]:
    """Records with every codec, some in transactions; what must be readable of each topic."""
    expected: dict[str, list[tuple[bytes | None, bytes]]] = {}
    for codec in _CODECS:
        topic = f"plain-{codec}"
        producer = apache.producer(**{"compression.type": codec, "enable.idempotence": True})
        wanted = [(b"k%d" % number if number % 3 else None, b"v%d " % number * 20) for number in range(3000)]
        for key, value in wanted:
            producer.produce(topic, value, key, headers=[("h", b"x")])
            producer.poll(0)
        assert producer.flush(30) == 0
        expected[topic] = wanted
    producer = apache.producer(**{"enable.idempotence": False})
    producer.produce("bare", b"theirs")
    assert producer.flush(30) == 0
    expected["bare"] = [(None, b"theirs")]
    producer = apache.producer(**{"transactional.id": "t", "compression.type": "zstd"})
    producer.init_transactions(30)
    expected["transactions"] = []
    for number in range(12):
        producer.begin_transaction()
        values = [b"%d-%d" % (number, index) for index in range(5)]
        for value in values:
            producer.produce("transactions", value)
        if number % 3 == 1:
            producer.flush(10)
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            expected["transactions"] += [(None, value) for value in values]
    return expected


def _shown_alike(path: str) -> None:
    """Both tools show the same of every file of a partition."""
    for file in sorted(Path(path).iterdir()):
        if file.suffix not in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
            continue
        flags = ["--print-data-log"] if file.suffix == ".log" else []
        theirs = _tool("--files", str(file), *flags).splitlines()
        ours = list(dump(HostDisk(), str(file), DumpOptions(print_data_log=bool(flags))))
        assert [line for line in ours if not line.startswith(("Non-consecutive", "  "))] == theirs
        if file.suffix in (".index", ".timeindex"):
            assert (
                "passed sanity check" in _tool("--files", str(file), "--index-sanity-check") or not file.stat().st_size
            )


def test_both_serve_every_record_of_the_other(apache: Apache) -> None:
    apache.start()
    expected = _produce(apache)
    # The last commit is answered before its marker is written; what read_committed serves has its marker.
    assert len(apache.consume("transactions", 40)) == 40
    apache.kill()

    # Apache was killed: we recover what it left, all of it.
    store = _store(apache)
    for topic, wanted in expected.items():
        log = store.get(TopicPartition(topic, 0))
        assert log is not None
        assert [(key, value) for _, _, key, value in _records(log)] == wanted
        assert log.last_stable_offset == log.end_offset
        found = log.max_timestamp()
        assert found is not None
        # Markers count as well: they bear the coordinator's time.
        assert found[0] >= max(timestamp for _, timestamp, _, _ in _records(log))
    transactions = store.get(TopicPartition("transactions", 0))
    assert transactions is not None
    assert len(transactions.aborted(0, transactions.end_offset)) == 4
    (producer,) = transactions.producers.by_id.values()
    assert producer.transaction_start == -1

    # We write on with every codec, and leave in good order.
    now_ms = int(time.time() * 1000)
    for number, codec in enumerate(Codec):
        topic = f"plain-{_CODECS[number]}"
        log = store.get(TopicPartition(topic, 0))
        assert log is not None
        for round_ in range(50):
            records = [(now_ms, b"ours", b"%d.%d" % (round_, index) * 30, [("a", None)]) for index in range(100)]
            log.append(bytearray(build(records, codec=codec)), leader_epoch=log.epochs.latest, now_ms=now_ms)
            expected[topic] += [(key, value) for _, key, value, _ in records]
    # A producer that no snapshot holds yet, and a log that never had one: the stop writes no snapshot of either.
    sent: list[NewRecord] = [(now_ms, None, b"numbered", [])]
    data = bytearray(build(sent, producer_id=4001, producer_epoch=0, base_sequence=0))
    transactions.append(data, leader_epoch=transactions.epochs.latest, now_ms=now_ms)
    bare = store.get(TopicPartition("bare", 0))
    assert bare is not None
    bare.restart_at(0, now_ms)
    bare.append(bytearray(build([(now_ms, None, b"ours", [])])), leader_epoch=1, now_ms=now_ms)
    expected["bare"] = [(None, b"ours")]
    kept = {topic: _records(log) for topic in expected if (log := store.get(TopicPartition(topic, 0)))}
    store.close()
    assert not list(Path(apache.data, "bare-0").glob("*.snapshot"))
    assert not Path(transactions.snapshots.path(transactions.end_offset)).exists()
    for topic in ("plain-none", "plain-zstd", "transactions"):
        _shown_alike(f"{apache.data}/{topic}-0")

    # And Apache serves what it wrote and what we wrote.
    apache.start()
    for topic, served in kept.items():
        assert apache.consume(topic, len(served)) == served
    producer = apache.producer(**{"enable.idempotence": True})
    producer.produce("plain-none", b"last")
    assert producer.flush(30) == 0
    apache.stop()

    # Once more ours, after its clean end: nothing is recovered, and its last record is there.
    assert Path(apache.data, ".kafka_cleanshutdown").exists()
    # Apache's own snapshot has the producer that it found in the batches alone.
    noted = decode(Path(transactions.snapshots.path(transactions.end_offset)).read_bytes())
    assert [each.sent[-1].last_sequence for producer_id, each in noted if producer_id == 4001] == [0]
    store = _store(apache)
    log = store.get(TopicPartition("plain-none", 0))
    assert log is not None
    assert log.recovery_point == log.end_offset
    assert _records(log)[-1][3] == b"last"
    store.abandon()

    # We were killed: Apache recovers what we left.
    apache.start()
    assert len(apache.consume("transactions", len(kept["transactions"]))) == len(kept["transactions"])
    apache.stop()
