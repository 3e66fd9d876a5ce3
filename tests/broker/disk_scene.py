"""A simulated machine with two log directories, and one client that remembers what was acknowledged."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ottla.broker.partitions.log_dirs import LogDirs
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import TopicPartition
from ottla.sim.machine import Machine
from ottla.wire.api import (
    API,
    alter_replica_log_dirs,
    delete_records,
    describe_log_dirs,
    fetch,
    incremental_alter_configs,
    list_offsets,
    metadata,
    produce,
)
from ottla.wire.batch import build, read
from ottla.wire.compile import decode, encode
from ottla.wire.header import RequestHeader, ResponseHeader, request_header_version, response_header_version

TOPIC = "t"
#: What is acknowledged is on the disk.
DURABLE = {"log.dirs": "/a,/b", "log.flush.interval.messages": "1", "log.segment.bytes": "1048576"}
_KEYS = {api.name: api.key for api in API.values()}


class Scene:
    """A machine with two directories, and one client; `release` as of `Machine`."""

    def __init__(self, seed: int = 1, release: str | None = None, **settings: str) -> None:
        own = {name.replace("_", "."): text for name, text in settings.items()}
        self.machine = Machine(Random(seed), DURABLE | own, release)
        self.machine.start()
        #: What was acknowledged, by partition.
        self.written: dict[int, list[bytes]] = {}

    @property
    def node(self) -> Any:
        assert self.machine.node is not None
        return self.machine.node

    def ask(self, request: Any, version: int) -> Any:
        key = _KEYS[type(request).__name__.removesuffix("Request")]
        header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=1, client_id="c")
        replies: list[bytes] = []
        connection = self.machine.connect(replies.append, lambda: replies.append(b""))
        connection.send(encode(header, request_header_version(key, version)) + encode(request, version))
        self.machine.run(lambda: bool(replies))
        assert replies, f"no answer: {self.machine.failure}"
        assert replies[0], "the connection was closed"
        _, position = decode(ResponseHeader, response_header_version(key, version), replies[0])
        return decode(API[key].response, version, replies[0], position)[0]

    def create(self, partitions: int = 4) -> None:
        self.machine.create_topic(TOPIC, partitions)
        self.machine.settle()

    def write(self, partition: int, value: bytes) -> str:
        data = bytearray(build([(self.machine.clock.now_ms(), b"k", value, ())]))
        part = produce.PartitionProduceData(index=partition, records=data)
        topics = [produce.TopicProduceData(name=TOPIC, partition_data=[part])]
        response = self.ask(produce.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics), 9)
        code = ErrorCode(response.responses[0].partition_responses[0].error_code)
        if code is ErrorCode.NONE:
            self.written.setdefault(partition, []).append(value)
        return code.name

    def read(self, partition: int, offset: int = 0) -> list[bytes]:
        found: list[bytes] = []
        while True:
            at = offset + len(found)
            part = fetch.FetchPartition(partition=partition, fetch_offset=at, partition_max_bytes=1 << 20)
            topics = [fetch.FetchTopic(topic=TOPIC, partitions=[part])]
            request = fetch.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, replica_id=-1, topics=topics)
            answer = self.ask(request, 12).responses[0].partitions[0]
            assert answer.error_code == 0, ErrorCode(answer.error_code)
            values = [
                bytes(record.value or b"") for batch in read(bytes(answer.records or b"")) for record in batch.records()
            ]
            if not values:
                return found
            found += values

    def delete_before(self, partition: int, offset: int) -> None:
        part = delete_records.DeleteRecordsPartition(partition_index=partition, offset=offset)
        topics = [delete_records.DeleteRecordsTopic(name=TOPIC, partitions=[part])]
        response = self.ask(delete_records.DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2)
        assert response.topics[0].partitions[0].low_watermark == offset, response

    def first_offset(self, partition: int) -> int:
        """The first readable offset."""
        part = list_offsets.ListOffsetsPartition(partition_index=partition, timestamp=-2)
        topics = [list_offsets.ListOffsetsTopic(name=TOPIC, partitions=[part])]
        answer = self.ask(list_offsets.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics), 6)
        found: int = answer.topics[0].partitions[0].offset
        return found

    def move(self, partition: int, path: str) -> str:
        topics = [alter_replica_log_dirs.AlterReplicaLogDirTopic(name=TOPIC, partitions=[partition])]
        dirs = [alter_replica_log_dirs.AlterReplicaLogDir(path=path, topics=topics)]
        response = self.ask(alter_replica_log_dirs.AlterReplicaLogDirsRequest(dirs=dirs), 2)
        return ErrorCode(response.results[0].partitions[0].error_code).name

    def slow_down(self, bytes_per_second: int) -> None:
        """Moves take their time from now on."""
        change = incremental_alter_configs.AlterableConfig(
            name="replica.alter.log.dirs.io.max.bytes.per.second", config_operation=0, value=str(bytes_per_second)
        )
        resource = incremental_alter_configs.AlterConfigsResource(resource_type=4, resource_name="1", configs=[change])
        response = self.ask(incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert response.responses[0].error_code == 0, response

    def lies_in(self, partition: int) -> str:
        path: str = self.node.store.directory_of(TopicPartition(TOPIC, partition))
        return path

    def until_moved(self, partition: int, path: str) -> None:
        self.machine.run(lambda: self.lies_in(partition) == path)
        self.machine.settle()
        assert self.lies_in(partition) == path, self.machine.failure

    def described(self) -> dict[str, Any]:
        response = self.ask(describe_log_dirs.DescribeLogDirsRequest(topics=None), 4)
        return {each.log_dir: each for each in response.results}

    def leader(self, partition: int) -> tuple[int, list[int]]:
        request = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=TOPIC)])
        found = self.ask(request, 9).topics[0].partitions[partition]
        return found.leader_id, found.offline_replicas

    def other(self, partition: int) -> str:
        return "/b" if self.lies_in(partition) == "/a" else "/a"

    def in_b(self) -> tuple[int, int]:
        """(a partition in /b, one in /a)"""
        there = {self.lies_in(index): index for index in range(4)}
        return there["/b"], there["/a"]


def about_to_move(seed: int, **settings: str) -> tuple[Scene, str]:
    """A scene with something to move, and where it is to go."""
    scene = Scene(seed, **settings)
    scene.create()
    for number in range(5):
        scene.write(1, b"before %d" % number)
    return scene, scene.other(1)


def held_before_its_swap(seed: int, source: str, target: str, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A scene whose partition 1 has a whole copy in `target`, while its log stays in `source`."""
    scene, _ = about_to_move(seed)
    if scene.lies_in(1) == target:
        assert scene.move(1, source) == "NONE"
        scene.until_moved(1, source)
    with monkeypatch.context() as away:
        away.setattr(LogDirs, "_swap", lambda *_: None)
        assert scene.move(1, target) == "NONE"
        scene.machine.settle()
    return scene
