"""kafka-dump-log: ours and Apache's say the same of the same files, of Apache's broker and of our node."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.client import (
    Acknowledge,
    Admin,
    ConfigResource,
    Consumer,
    NewTopic,
    Producer,
    ResourceType,
    ShareConsumer,
    TopicPartition,
)
from tests.cli.kafka_tool import kafka
from tests.interop.apache_tool import ApacheTools
from tests.interop.server import Server, apache
from tests.interop.server import ottla as our_node

pytestmark = pytest.mark.interop

_SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "log.segment.bytes": "1048576",
    "log.index.interval.bytes": "512",
    # The index of an empty log is as long as it may become, and both read all of it.
    "log.index.size.max.bytes": "16384",
}
_DECODERS = {
    "__consumer_offsets-": "--offsets-decoder",
    "__transaction_state-": "--transaction-log-decoder",
    "__share_group_state-": "--share-group-state-decoder",
    "__cluster_metadata-": "--cluster-metadata-decoder",
}


@pytest.fixture(scope="module")
def tools() -> Iterator[ApacheTools]:
    with ApacheTools() as one:
        yield one


def _write(bootstrap: str) -> None:
    """Something of everything that stands in a node's logs."""
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic("plain", 1), NewTopic("tight", 2, configs={"cleanup.policy": "compact"})])
        admin.alter_client_quotas([({"user": "ann"}, {"controller_mutation_rate": 12345678.5})]).check()
        admin.alter_config(ConfigResource(ResourceType.GROUP, "sharing"), {"share.auto.offset.reset": "earliest"})
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            _produce(bootstrap, codec)
        _transact(bootstrap)
        _read(bootstrap)
        admin.delete_records({TopicPartition("plain", 0): 7})
        admin.delete_groups(["gone"])
        admin.delete_topics(["tight"])


def _produce(bootstrap: str, codec: str) -> None:
    with Producer(bootstrap, compression_type=codec, linger_ms=0) as producer:
        for number in range(12):
            headers = [("h", b"1"), ("\u00e4", None)] if number % 3 == 0 else []
            key = None if number % 4 == 0 else f"key {number} \u00fc".encode()
            value = None if number % 5 == 1 else bytes([0, 7, 255, 34, 92]) + b"v" * 90
            producer.send("plain", value, key=key, headers=headers)
            producer.flush()


def _transact(bootstrap: str) -> None:
    with Producer(bootstrap, transactional_id="writer") as producer:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            producer.send("plain", b"in a transaction", key=b"k")
            producer.send("tight", b"in a transaction", key=b"k", partition=1)
            producer.flush()
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()


def _read(bootstrap: str) -> None:
    for protocol in ("classic", "consumer"):
        for group in ("kept", "gone"):
            name = group if group == "gone" and protocol == "classic" else f"{group}-{protocol}"
            with Consumer(
                bootstrap, group_id=name, group_protocol=protocol, auto_offset_reset="earliest", client_id="caf\u00e9"
            ) as consumer:
                consumer.subscribe(["plain", "tight"])
                while not consumer.poll(1.0):
                    pass
                consumer.commit()
    with ShareConsumer(bootstrap, group_id="sharing", share_acknowledgement_mode="explicit") as consumer:
        consumer.subscribe(["plain"])
        while not (records := consumer.poll(1.0)):
            pass
        for record in records:
            consumer.acknowledge(record, list(Acknowledge)[record.offset % 3])
        consumer.commit()


@pytest.fixture(scope="module", params=["apache", "ottla"])
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    kind = apache() if request.param == "apache" else our_node()
    server = Server(kind, tmp_path_factory.mktemp(request.param), _SETTINGS)
    server.start()
    try:
        _write(server.bootstrap)
        server.stop()
    finally:
        server.kill()
    kinds = (".log", ".index", ".timeindex", ".snapshot", ".txnindex", ".checkpoint")
    return sorted(path for path in server.log_dir.rglob("*") if path.suffix in kinds)


@pytest.mark.parametrize(
    "flags",
    [
        (),
        (
            "--deep-iteration",
            "--value-decoder-class",
            "--key-decoder-class",
            "org.apache.kafka.tools.api.StringDecoder",
        ),
        ("--print-data-log", "--skip-record-metadata"),
        ("--index-sanity-check",),
        ("--verify-index-only",),
        ("--print-data-log", "--max-bytes", "3000"),
        ("decoder",),
        ("decoder", "--skip-record-metadata"),
    ],
    ids=" ".join,
)
def test_both_say_the_same_of_every_file(files: list[Path], tools: ApacheTools, flags: tuple[str, ...]) -> None:
    assert {path.suffix for path in files} >= {".log", ".index", ".timeindex", ".snapshot", ".checkpoint"}
    for path in files:
        decoder = next((each for name, each in _DECODERS.items() if path.parent.name.startswith(name)), None)
        if path.name == "bootstrap.checkpoint":
            decoder = "--cluster-metadata-decoder"
        if "decoder" in flags and decoder is None:
            continue
        words = ["--files", str(path), *(decoder or each if each == "decoder" else each for each in flags)]
        theirs, ours = tools("kafka-dump-log", *words), kafka("kafka-dump-log", *words)
        assert (ours.code, ours.out.splitlines()) == (theirs.code, theirs.out.splitlines()), path
        if "NoSuchElementException" in theirs.err:
            # The preallocated index of an empty log; Apache's has no words for it.
            assert "where the log has no batch" in ours.err
        else:
            assert ours.err.splitlines() == _words(theirs.err), path


def _words(err: str) -> list[str]:
    """Without the stack trace, and what stands before the message."""
    lines = [line for line in err.splitlines() if not line.startswith(("\tat ", "Caused by: "))]
    return [line.removeprefix('Exception in thread "main" ').partition("Exception: ")[2] or line for line in lines]
