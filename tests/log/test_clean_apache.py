"""Apache Kafka 4.3.1 as the referee of compaction: both clean the same input, and the same is left."""

import contextlib
import random
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla.host.disk import HostDisk
from ottla.kernel.ids import TopicPartition
from ottla.log.checkpoint import CorruptCheckpoint, read_offsets
from ottla.log.cleaning.job import Cleaning, plan
from ottla.log.cleaning.plan import cleanable
from ottla.log.cleaning.swap import swap
from ottla.log.directory.store import Store
from ottla.log.log import Log, LogSettings
from ottla.wire.batch import Batch, read
from tests.log.test_apache import Apache, _java, _records, _tool

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

_TOPICS = [*(f"clean-{codec}" for codec in ("none", "gzip", "snappy", "lz4", "zstd")), "clean-transactions"]
_SETTINGS = LogSettings(
    segment_bytes=1 << 20, cleanup_policy=frozenset({"compact"}), delete_retention_ms=1, min_cleanable_dirty_ratio=0.01
)


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apache]:
    broker = Apache(
        tmp_path_factory.mktemp("cleaner"),
        log_cleaner_backoff_ms="100",
        log_cleaner_min_cleanable_ratio="0.01",
        log_cleaner_delete_retention_ms="1",
    )
    try:
        yield broker
    finally:
        broker.kill()


def _create(apache: Apache) -> None:
    from confluent_kafka.cimpl import NewTopic

    topics = [NewTopic(name, 1, 1, config={"cleanup.policy": "compact"}) for name in _TOPICS]
    admin = apache.admin()
    for future in admin.create_topics(topics).values():
        future.result(30)


def _fill(apache: Apache, rng: random.Random) -> None:
    """More than two segments of each topic: few keys, tombstones, headers, and transactions of which some abort."""
    for topic in _TOPICS[:-1]:
        producer = apache.producer(**{"compression.type": topic[6:], "enable.idempotence": True, "linger.ms": 2})
        for number in range(2600):
            _produce(producer, topic, rng, number)
            if number % 20 == 0:
                producer.flush(10)
        assert producer.flush(30) == 0
    producer = apache.producer(**{"transactional.id": "t"})
    producer.init_transactions(30)
    for number in range(60):
        producer.begin_transaction()
        for index in range(rng.randrange(1, 80)):
            _produce(producer, "clean-transactions", rng, index)
        if number % 3 == 1:
            producer.flush(10)
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


def _produce(producer: Any, topic: str, rng: random.Random, number: int) -> None:
    value = None if rng.random() < 0.1 else rng.randbytes(1200)
    producer.produce(topic, value, b"key-%d" % rng.randrange(300), headers=[("n", b"%d" % number)])
    producer.poll(0)


def _wait_for_the_cleaner(apache: Apache, ends: dict[str, int]) -> None:
    deadline = time.monotonic() + 60
    path = f"{apache.data}/cleaner-offset-checkpoint"
    found: dict[TopicPartition, int] = {}
    while time.monotonic() < deadline:
        with contextlib.suppress(CorruptCheckpoint):
            # Apache makes the file before it fills it.
            found = read_offsets(HostDisk(), path)
        if all(found.get(TopicPartition(topic, 0)) == end for topic, end in ends.items()):
            return
        apache.admin().list_topics(timeout=5)
    raise AssertionError(f"Apache did not clean up to {ends}: {found}")


def _open(data: str) -> Store:
    now_ms = int(time.time() * 1000)
    return Store.open(HostDisk(), [data], node_id=1, now_ms=now_ms, settings_of=lambda _: _SETTINGS)


def _log(store: Store, topic: str) -> Log:
    log = store.get(TopicPartition(topic, 0))
    assert log is not None
    return log


def _clean(log: Log) -> int:
    now_ms = int(time.time() * 1000)
    found = cleanable(log, now_ms)
    assert found is not None
    job = plan(log, found.first_dirty_offset, found.end_offset, now_ms, keys_max=100_000, buffer_bytes=1 << 18)
    cleaning = Cleaning(log.disk, job, lambda _: None)
    for bases in cleaning.run():
        assert swap(log, job, bases, now_ms)
    log.cleaner_offset = cleaning.end_offset
    return cleaning.end_offset


def _shape(batch: Batch) -> tuple[Any, ...]:
    """All of a batch that does not depend on when it was cleaned or by whose compressor."""
    header = batch.header
    return (
        header.base_offset,
        header.last_offset,
        header.partition_leader_epoch,
        header.attributes,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        batch.records(),
    )


def _batches(log: Log) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for segment in log.segments:
        found += [_shape(batch) for batch in read(segment.file.read(segment.size, 0))]
    return found


def test_what_we_clean_is_what_apache_cleans_batch_by_batch(apache: Apache) -> None:
    ours = f"{apache.path}/ours"
    for seed in (1, 2):
        # The second round finds what Apache has cleaned in the first: the horizons of its tombstones and markers.
        apache.set(log_cleaner_enable="false")
        apache.start()
        if seed == 1:
            _create(apache)
        _fill(apache, random.Random(seed))
        apache.stop()
        shutil.rmtree(ours, ignore_errors=True)
        shutil.copytree(apache.data, ours)

        store = _open(ours)
        before = {topic: len(_records(_log(store, topic))) for topic in _TOPICS}
        ends = {topic: _clean(_log(store, topic)) for topic in _TOPICS}
        cleaned = {topic: _batches(_log(store, topic)) for topic in _TOPICS}
        after = {topic: len(_records(_log(store, topic))) for topic in _TOPICS}
        assert all(after[topic] < before[topic] / 1.5 for topic in _TOPICS)
        store.close()

        apache.set(log_cleaner_enable="true")
        apache.start()
        _wait_for_the_cleaner(apache, ends)
        apache.stop()
        store = _open(apache.data)
        for topic in _TOPICS:
            theirs = _batches(_log(store, topic))
            assert cleaned[topic] == theirs, topic
        store.close()


def test_apache_reads_what_we_cleaned_and_goes_on_from_it(apache: Apache) -> None:
    ours = f"{apache.path}/ours"
    for topic in _TOPICS:
        for file in sorted(Path(ours, f"{topic}-0").glob("*.log")):
            shown = _tool("--files", str(file), "--deep-iteration")
            assert shown.count("isvalid: true") == shown.count("baseOffset:") > 0 or not file.stat().st_size
            assert "isvalid: false" not in shown
        for file in sorted(Path(ours, f"{topic}-0").glob("*.*index")):
            if file.suffix != ".txnindex" and file.stat().st_size < 1 << 20:
                assert "passed sanity check" in _tool("--files", str(file), "--index-sanity-check") or (
                    not file.stat().st_size
                )
    store = _open(ours)
    served = {topic: _records(_log(store, topic)) for topic in _TOPICS}
    offsets = {topic: _log(store, topic).cleaner_offset for topic in _TOPICS}
    store.close()
    shutil.rmtree(apache.data)
    Path(ours).rename(apache.data)
    apache.set(log_cleaner_enable="false")
    apache.start()
    for topic, records in served.items():
        assert apache.consume(topic, len(records)) == records
    # The sequences of idempotent producers, and what is written next.
    producer = apache.producer(**{"transactional.id": "t"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("clean-transactions", b"last", b"key-0")
    producer.commit_transaction(30)
    apache.stop()
    assert read_offsets(HostDisk(), f"{apache.data}/cleaner-offset-checkpoint") is not None
    assert all(offset is not None for offset in offsets.values())


def test_apaches_own_tester_of_compaction_finds_what_it_wrote(tmp_path: Path) -> None:
    settings = {"log.cleaner.backoff.ms": 50, "log.cleaner.min.cleanable.ratio": 0.01, "log.segment.bytes": 1 << 20}
    with ottla.Node(tmp_path / "data", settings=settings) as node:
        done = subprocess.run(
            _java(
                f"-Djava.io.tmpdir={tmp_path}",
                "org.apache.kafka.tools.LogCompactionTester",
                *("--bootstrap-server", node.bootstrap_servers),
                *("--messages", "200000", "--duplicates", "20", "--percent-deletes", "10", "--sleep", "3"),
                *("--compression-type", "lz4"),
            ),
            capture_output=True,
            text=True,
            timeout=200,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Data verification is completed" in done.stdout
    reduction = re.search(r"\((\d+\.\d)% reduction\)", done.stdout)
    assert reduction is not None
    assert float(reduction[1]) > 20, done.stdout
