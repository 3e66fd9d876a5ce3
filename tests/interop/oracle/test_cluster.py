"""ApiVersions, Metadata, DescribeCluster, FindCoordinator, DescribeLogDirs: what a client asks first."""

import time
from typing import Any

import pytest

from tests.interop.oracle.side import Oracle, Side

#: A topic that is made because it was asked for is there by then, however busy the machine is.
AUTO_CREATED_S = 60


@pytest.mark.parametrize("version", range(5))
def test_the_versions_that_are_served(oracle: Oracle, version: int) -> None:
    def script(side: Side) -> None:
        name: dict[str, Any] = {"client_software_name": "oracle", "client_software_version": "1.0"}
        reply = side.ask("ApiVersions", version, note=False, **name)
        served = {one.api_key: (one.min_version, one.max_version) for one in reply.api_keys}
        for key in sorted(set(range(95))):
            side.note(f"key {key}", served.get(key))
        reply.api_keys = []
        reply.finalized_features_epoch = 0 if reply.finalized_features_epoch >= 0 else -1
        reply.supported_features.sort(key=lambda one: one.name)
        reply.finalized_features.sort(key=lambda one: one.name)
        side.note(f"ApiVersions v{version}", reply, version)

    oracle.compare(script)


def test_a_version_that_is_not_served_is_told_what_is(oracle: Oracle) -> None:
    def script(side: Side) -> None:
        reply = side.ask("ApiVersions", 99, note=False)
        side.note("error", reply.error_code)
        side.note("keys", [(one.api_key, one.min_version, one.max_version) for one in reply.api_keys])

    oracle.compare(script)


def test_a_client_without_a_name_is_refused(oracle: Oracle) -> None:
    def script(side: Side) -> None:
        for name in ("", "no spaces", "-first", "ok.name-1"):
            reply = side.ask("ApiVersions", 3, note=False, client_software_name=name, client_software_version="1.0")
            side.note(name, reply.error_code)

    oracle.compare(script)


@pytest.mark.parametrize("version", range(14))
def test_the_metadata_of_topics_that_are_there_and_not_there(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        side.create(name, 3)
        asked = [{"name": name}, {"name": name + "-missing"}, {"name": "bad name"}]
        options: dict[str, Any] = {"allow_auto_topic_creation": False} if version >= 4 else {}
        if version < 4:
            asked = asked[:1]  # these versions always create what is not there
        if version >= 8:
            options["include_topic_authorized_operations"] = True
        reply = side.ask("Metadata", version, note=False, topics=asked, **options)
        for topic in reply.topics:
            topic.partitions.sort(key=lambda one: one.partition_index)
        side.note(f"Metadata v{version}", reply, version)
        side.ask("Metadata", version, topics=[] if version else [{"name": name}], **options)

    oracle.compare(script)


def test_metadata_by_topic_id(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        topic_id = side.create(name)
        for version in (12, 13):
            side.ask("Metadata", version, topics=[{"topic_id": topic_id, "name": None}])
            side.ask("Metadata", version, topics=[{"topic_id": b"\1" * 16, "name": None}])

    oracle.compare(script)


def test_metadata_makes_the_topic_that_is_asked_for(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        reply = side.ask("Metadata", 9, note=False, topics=[{"name": name}], allow_auto_topic_creation=True)
        side.note("first", (reply.topics[0].error_code, reply.topics[0].partitions))
        # As clients do: a broker whose controller did not answer in time makes it when it is asked again.
        deadline = time.monotonic() + AUTO_CREATED_S
        while not reply.topics[0].partitions and time.monotonic() < deadline:
            reply = side.ask("Metadata", 9, note=False, topics=[{"name": name}], allow_auto_topic_creation=True)
        side.await_topic(name, 1)
        side.ask("Metadata", 9, topics=[{"name": name}])
        refused = side.ask("Metadata", 9, note=False, topics=[{"name": "bad name"}], allow_auto_topic_creation=True)
        side.note("bad name", refused.topics[0].error_code)

    oracle.compare(script)


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_described(oracle: Oracle, version: int) -> None:
    def script(side: Side) -> None:
        side.ask("DescribeCluster", version)
        side.ask("DescribeCluster", version, include_cluster_authorized_operations=True)
        if version:
            side.ask("DescribeCluster", version, endpoint_type=2)
            side.ask("DescribeCluster", version, endpoint_type=9)

    oracle.compare(script)


@pytest.mark.parametrize("version", range(7))
def test_coordinators_are_found(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        def find(key: str, key_type: int) -> None:
            asked: dict[str, Any] = {"coordinator_keys": [key]} if version >= 4 else {"key": key}
            if version:
                asked["key_type"] = key_type
            error, reply = 15, None
            while error == 15:  # the internal topic is being made
                reply = side.ask("FindCoordinator", version, note=False, **asked)
                error = reply.coordinators[0].error_code if version >= 4 else reply.error_code
            side.note(f"FindCoordinator v{version} {key_type}", reply, version)

        find(name, 0)
        if version:
            find(name, 1)
            find(name, 7)
            find("", 0)
        if version >= 6:
            find("no-share-key", 2)

    oracle.compare(script)


@pytest.mark.parametrize("version", range(1, 6))
def test_log_directories_are_described(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        side.create(name, 2)
        for partitions in ([0, 1], [1], [7]):
            asked = [{"topic": name, "partitions": partitions}]
            reply = side.ask("DescribeLogDirs", version, note=False, topics=asked)
            for directory in reply.results:
                # What the disk has is the machine's, and both share it.
                directory.total_bytes, directory.usable_bytes = (min(0, one) for one in (directory.total_bytes, 0))
                for topic in directory.topics:
                    topic.partitions.sort(key=lambda one: one.partition_index)
            side.note(f"DescribeLogDirs v{version}", reply, version)
        side.ask("DescribeLogDirs", version, topics=[{"topic": name + "-missing", "partitions": [0]}], note=False)

    oracle.compare(script)


@pytest.mark.parametrize("version", [1, 2])
def test_replicas_are_moved_or_refused(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        side.create(name, 2)

        def move(path: str, *partitions: int, topic: str = name) -> None:
            dirs = [{"path": path, "topics": [{"name": topic, "partitions": list(partitions)}]}]
            reply = side.ask("AlterReplicaLogDirs", version, note=False, dirs=dirs)
            for result in reply.results:
                result.partitions.sort(key=lambda one: one.partition_index)
            side.note(f"AlterReplicaLogDirs v{version}", reply, version)

        own = str(side.server.log_dir)
        move(own, 0, 1)
        move(own + "/", 0)
        move("relative", 0)
        move("/nowhere", 0, 9)
        move(own, 9)
        move(own, 0, topic=name + "-missing")
        move(own, 0, topic="bad name")
        move(own, 0, topic="x" * 240)
        move(own)
        side.ask("AlterReplicaLogDirs", version, dirs=[])

    oracle.compare(script)
