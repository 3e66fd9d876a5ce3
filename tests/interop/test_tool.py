"""Apache's command-line tools against the node: what people type, and what it prints."""

import re
import subprocess
import time

import pytest

from tests.interop import toolchain
from tests.interop.peer import Peer, Record
from tests.interop.scene import NOW_MS, plain
from tests.interop.server import Server

pytestmark = pytest.mark.interop

TIMEOUT_S = 90


def tool(main: str, *arguments: str, typed: str = "", code: int = 0) -> str:
    """Run a tool by its class; what it printed. It must end with `code`."""
    command = ["java", *toolchain.quick_jvm("256m"), "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    command += ["-cp", toolchain.classpath(), main if main.startswith("kafka.") else f"org.apache.kafka.{main}"]
    done = subprocess.run([*command, *arguments], input=typed, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == code, f"{main} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def test_kafka_topics_creates_describes_alters_lists_and_deletes(server: Server, name: str) -> None:
    topics = ("tools.TopicCommand", "--bootstrap-server", server.bootstrap)
    config = ("--config", "retention.ms=123456")
    assert "Created topic" in tool(*topics, "--create", "--topic", name, "--partitions", "2", *config)
    told = tool(*topics, "--describe", "--topic", name)
    assert "PartitionCount: 2" in told
    assert "retention.ms=123456" in told
    assert re.search(r"Partition: 1\s+Leader: 1\s+Replicas: 1\s+Isr: 1", told)
    tool(*topics, "--alter", "--topic", name, "--partitions", "3")
    assert "PartitionCount: 3" in tool(*topics, "--describe", "--topic", name)
    assert name in tool(*topics, "--list").split()
    tool(*topics, "--delete", "--topic", name)
    assert name not in tool(*topics, "--list").split()
    assert "does not exist" in tool(*topics, "--describe", "--topic", name, code=1)


def test_the_console_tools_write_and_read_keys_and_headers(server: Server, helper: Peer, name: str) -> None:
    helper.create(name, 1)
    properties = ("parse.key=true", "parse.headers=true", "null.marker=NULL")
    options = [part for one in properties for part in ("--reader-property", one)]
    where = ("--bootstrap-server", server.bootstrap, "--topic", name)
    tool("tools.ConsoleProducer", *where, *options, typed="h:1,i:2\tkey\tvalue\nNULL\tNULL\tNULL\nh:3\tk2\tv2\n")
    found = helper.consume(name, [0], 3)
    assert [record[2:] for _, record in sorted(found.items())] == [
        (b"key", b"value", (("h", b"1"), ("i", b"2"))),
        (None, None, ()),
        (b"k2", b"v2", (("h", b"3"),)),
    ]
    properties = ("print.key=true", "print.headers=true", "print.offset=true")
    options = [part for one in properties for part in ("--formatter-property", one)]
    said = tool("tools.consumer.ConsoleConsumer", *where, *options, "--from-beginning", "--max-messages", "3")
    assert said.splitlines()[:3] == [
        "Offset:0\th:1,i:2\tkey\tvalue",
        "Offset:1\tNO_HEADERS\tnull\tnull",
        "Offset:2\th:3\tk2\tv2",
    ]


def test_kafka_configs_alters_and_describes(server: Server, helper: Peer, name: str) -> None:
    helper.create(name, 1)
    configs = ("kafka.admin.ConfigCommand", "--bootstrap-server", server.bootstrap)
    of = ("--entity-type", "topics", "--entity-name", name)
    tool(*configs, *of, "--alter", "--add-config", "retention.ms=77777,cleanup.policy=[compact,delete]")
    told = tool(*configs, *of, "--describe")
    assert "retention.ms=77777" in told
    assert "cleanup.policy=compact,delete" in told
    tool(*configs, *of, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms" not in tool(*configs, *of, "--describe")
    assert "log.dirs" in tool(*configs, "--entity-type", "brokers", "--entity-name", "1", "--describe", "--all")


def test_kafka_consumer_groups_lists_describes_and_resets(server: Server, helper: Peer, name: str) -> None:
    helper.create(name, 1)
    helper.produce(name, plain(20))
    where = ("--bootstrap-server", server.bootstrap)
    reading = ("--topic", name, "--group", name, "--from-beginning", "--max-messages", "12")
    tool("tools.consumer.ConsoleConsumer", *where, *reading, "--timeout-ms", "20000")
    groups = ("tools.consumer.group.ConsumerGroupCommand", *where)
    assert name in tool(*groups, "--list").split()
    assert re.search(rf"{name}\s+{name}\s+0\s+12\s+20\s+8", tool(*groups, "--describe", "--group", name))
    assert "Empty" in tool(*groups, "--describe", "--group", name, "--state")
    reset = ("--reset-offsets", "--group", name, "--topic", name, "--to-offset", "5", "--execute")
    assert re.search(rf"{name}\s+0\s+5", tool(*groups, *reset))
    assert helper.ask("committed", group=name, topic=name) == {"offsets": {"0": 5}}
    tool(*groups, "--delete", "--group", name)
    assert name not in tool(*groups, "--list").split()


def test_kafka_get_offsets_and_delete_records(server: Server, helper: Peer, name: str, tmp_path: object) -> None:
    helper.create(name, 1)
    helper.produce(name, [Record(0, NOW_MS + number, None, b"x") for number in range(30)])
    offsets = ("tools.GetOffsetShell", "--bootstrap-server", server.bootstrap, "--topic", name, "--time")
    assert f"{name}:0:30" in tool(*offsets, "-1")
    assert f"{name}:0:0" in tool(*offsets, "-2")
    assert f"{name}:0:7" in tool(*offsets, str(NOW_MS + 7))
    assert f"{name}:0:29" in tool(*offsets, "-3")
    wanted = f"{tmp_path}/offsets.json"
    with open(wanted, "w") as file:
        file.write(f'{{"partitions": [{{"topic": "{name}", "partition": 0, "offset": 9}}], "version": 1}}')
    where = ("--bootstrap-server", server.bootstrap, "--offset-json-file", wanted)
    assert "low_watermark: 9" in tool("tools.DeleteRecordsCommand", *where)
    assert f"{name}:0:9" in tool(*offsets, "-2")


def test_the_cluster_tools_describe_the_node(server: Server, helper: Peer, name: str) -> None:
    helper.create(name, 1)
    where = ("--bootstrap-server", server.bootstrap)
    assert "Ottla-Interop-Cluster1" in tool("tools.ClusterTool", "cluster-id", *where)
    assert "Fetch(1): 4 to 18" in tool("tools.BrokerApiVersionsCommand", *where)
    assert re.search(r"metadata\.version", tool("tools.FeatureCommand", *where, "describe"))
    assert re.search(r"LeaderId:\s+1", tool("tools.MetadataQuorumCommand", *where, "describe", "--status"))
    assert f'"partition":"{name}-0"' in tool("tools.LogDirsCommand", *where, "--describe", "--topic-list", name)


def test_the_verifiable_clients_agree_on_what_was_written(server: Server, helper: Peer, name: str) -> None:
    helper.create(name, 2)
    where = ("--bootstrap-server", server.bootstrap, "--topic", name)
    said = tool("tools.VerifiableProducer", *where, "--max-messages", "500", "--acks", "-1")
    assert '"acked":500' in said
    began = time.monotonic()
    said = tool(
        "tools.VerifiableConsumer", *where, "--group-id", name, "--max-messages", "500", "--reset-policy", "earliest"
    )
    assert sum(int(one) for one in re.findall(r'"records_consumed".*?"count":(\d+)', said)) == 500
    assert time.monotonic() - began < TIMEOUT_S


def test_the_dump_tool_reads_the_nodes_files(server: Server, helper: Peer, name: str) -> None:
    helper.create(name, 1)
    helper.produce(name, plain(25), codec="lz4")
    log = server.log_dir / f"{name}-0" / f"{0:020d}.log"
    said = tool("tools.DumpLogSegments", "--files", str(log), "--deep-iteration", "--print-data-log")
    assert "compresscodec: lz4" in said
    assert "isvalid: true" in said
    assert "payload: value-24" in said
