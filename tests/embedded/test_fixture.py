"""The fixtures that Ottla brings to everyone's tests."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import ottla
from ottla.client import AsyncConsumer, Consumer, KafkaError, TopicPartition
from ottla.embedded import node as embedded
from ottla.embedded.fixture_node import FixtureNode
from ottla.wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.api.metadata import MetadataRequest
from tests.broker.wire_client import WireClient

TOPIC, BROKER = 2, 4


def test_ottla_topic_is_there_on_ottla_node(ottla_node: ottla.Node, ottla_topic: str) -> None:
    with WireClient(ottla_node.bootstrap_servers) as client:
        (topic,) = client.ask(MetadataRequest(topics=None), 12).topics
    assert topic.name == ottla_topic == "test_ottla_topic_is_there_on_ottla_node"
    assert len(topic.partitions) == 1


def test_every_test_has_a_node_of_its_own(ottla_node: ottla.Node) -> None:
    with WireClient(ottla_node.bootstrap_servers) as client:
        assert client.ask(MetadataRequest(topics=None), 12).topics == []


def setting(client: WireClient, kind: int, resource: str, name: str) -> str:
    asked = DescribeConfigsResource(resource_type=kind, resource_name=resource, configuration_keys=[name])
    (found,) = client.ask(DescribeConfigsRequest(resources=[asked]), 4).results
    return str(found.configs[0].value)


@pytest.mark.ottla(settings={"message.max.bytes": 1234}, partitions=3, topic_settings={"retention.ms": 5})
def test_a_mark_says_what_the_node_and_the_topic_are_like(ottla_node: ottla.Node, ottla_topic: str) -> None:
    with WireClient(ottla_node.bootstrap_servers) as client:
        assert len(client.ask(MetadataRequest(topics=None), 12).topics[0].partitions) == 3
        assert setting(client, BROKER, "1", "message.max.bytes") == "1234"
        assert setting(client, TOPIC, ottla_topic, "retention.ms") == "5"


MISSPELT = """
import pytest

@pytest.mark.ottla(partition=3)
def test_it(ottla_topic):
    pass
"""


def test_a_mark_that_is_misspelt_is_refused(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(MISSPELT)
    command = [sys.executable, "-m", "pytest", "-p", "ottla.testing", "-c", "/dev/null", "--strict-markers"]
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = subprocess.run(
        [*command, "--rootdir", tmp_path, tmp_path], capture_output=True, text=True, timeout=120, check=False, env=alone
    )
    assert "takes nodes, partitions, settings, topic_settings by name" in ran.stdout
    assert "1 error" in ran.stdout


def test_a_node_says_where_it_is() -> None:
    node = ottla.Node()
    assert repr(node) == "<ottla.Node, not running>"
    with node:
        assert repr(node) == f"<ottla.Node on {node.bootstrap_servers}, data in {node.data}>"


# ---- helpers


def test_what_is_produced_is_among_the_records(ottla_node: FixtureNode, ottla_topic: str) -> None:
    where = ottla_node.produce(ottla_topic, [b"a", "b", None, ("k", "c")], timestamp=5)
    assert [one.offset for one in where] == [0, 1, 2, 3]
    found = ottla_node.records(ottla_topic)
    assert [(one.key, one.value) for one in found] == [(None, b"a"), (None, b"b"), (None, None), (b"k", b"c")]
    assert {one.timestamp for one in found} == {5}
    with pytest.raises(TypeError, match="expected a list of values"):
        ottla_node.produce(ottla_topic, "abc")
    with pytest.raises(KafkaError, match="there is no topic nosuch"):
        ottla_node.records("nosuch", timeout=0.2)


def test_records_are_waited_for(ottla_node: FixtureNode, ottla_topic: str) -> None:
    assert ottla_node.records(ottla_topic) == []
    writer = threading.Thread(target=ottla_node.produce, args=(ottla_topic, ['{"n":1}', '{"n":2}']))
    writer.start()
    found = ottla_node.records(ottla_topic, 2, value_deserializer="json")
    writer.join()
    assert [one.value for one in found] == [{"n": 1}, {"n": 2}]
    with pytest.raises(TimeoutError, match=r"has 2 records after 0\.1 s, expected 3"):
        ottla_node.records(ottla_topic, 3, timeout=0.1)


def test_a_group_that_reads_on_comes_to_no_lag(ottla_node: FixtureNode, ottla_topic: str) -> None:
    ottla_node.produce(ottla_topic, ["a", "b", "c"])
    with pytest.raises(TimeoutError, match=r"not come to a lag of 0 within 0\.05 s .there is no such group"):
        ottla_node.wait_for_lag("g", timeout=0.05)
    with Consumer(ottla_node.bootstrap_servers, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe([ottla_topic])
        first = consumer.poll(20, max_records=1)
        consumer.commit(first[0])
        ottla_node.wait_for_lag("g", 2)
        with pytest.raises(TimeoutError, match=f"{ottla_topic}-0: 2"):
            ottla_node.wait_for_lag("g", timeout=0.05)
        while len(first) < 3:
            first += consumer.poll(20)
        consumer.commit()
        ottla_node.wait_for_lag("g")


def test_helpers_leave_the_loop_of_an_asynchronous_test_free(ottla_node: FixtureNode, ottla_topic: str) -> None:
    async def service() -> None:
        async with AsyncConsumer(ottla_node.bootstrap_servers, group_id="s", auto_offset_reset="earliest") as consumer:
            consumer.subscribe([ottla_topic])
            async for record in consumer:
                await consumer.commit(record)

    async def main() -> None:
        running = asyncio.create_task(service())
        await ottla_node.produce_async(ottla_topic, ["a", "b"])
        await ottla_node.wait_for_lag_async("s", timeout=30)
        assert len(await ottla_node.records_async(ottla_topic, 2)) == 2
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(main())


@pytest.mark.parametrize("turn", [1, 2])
def test_the_node_of_the_session_is_one_and_its_topics_are_many(
    ottla_session_node: FixtureNode, ottla_session_topic: str, turn: int, seen: set[str]
) -> None:
    assert ottla_session_node.records(ottla_session_topic) == []
    ottla_session_node.produce(ottla_session_topic, ["x"])
    seen.add(f"{ottla_session_node.bootstrap_servers} {ottla_session_topic}")
    assert len(seen) == turn
    assert len({one.split()[0] for one in seen}) == 1


@pytest.fixture(scope="module")
def seen() -> set[str]:
    return set()


KILLED = """
import threading, ottla
with ottla.Node() as node, ottla.Node() as other:
    print(node.data, other.data, flush=True)
    threading.Event().wait()
"""


def test_a_program_that_is_killed_leaves_no_directory() -> None:
    program = subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    with program.stdout as out:
        directories = [Path(one) for one in out.readline().split()]
        assert len(directories) == 2
        assert all(one.is_dir() for one in directories)
        program.send_signal(signal.SIGTERM)
        assert program.wait(60) == -signal.SIGTERM
    assert not any(one.exists() for one in directories)


def test_a_programs_own_handler_of_sigterm_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_started", {})

    def own(*_: object) -> None:
        """Nothing."""

    before = signal.signal(signal.SIGTERM, own)
    try:
        with ottla.Node():
            assert signal.getsignal(signal.SIGTERM) is own
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with ottla.Node():
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.ottla(partitions=3)
def test_the_lag_is_that_of_all_partitions_together(ottla_node: FixtureNode, ottla_topic: str) -> None:
    for partition in range(3):
        ottla_node.produce(ottla_topic, ["a", "b"], partition=partition)
    with Consumer(ottla_node.bootstrap_servers, group_id="g") as consumer:
        consumer.assign([TopicPartition(ottla_topic, partition) for partition in range(3)])
        consumer.commit({TopicPartition(ottla_topic, 0): 1, TopicPartition(ottla_topic, 1): 0})
        consumer.commit({TopicPartition(ottla_topic, 2): 2})
        with pytest.raises(TimeoutError, match="has not come to a lag of 2 within"):
            ottla_node.wait_for_lag("g", 2, timeout=0.05)
        ottla_node.wait_for_lag("g", 3)
