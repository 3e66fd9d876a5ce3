"""Every level of `metadata.version`, from the lowest up: what is offered, what is answered, which records are written.

One pair of servers is raised level by level (the long form), or in three jumps. The long form also formats a pair at
every level: the other features then have that level's defaults.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from ottla.metadata.feature import DIRECTORIES_FROM, METADATA_VERSIONS
from ottla.wire.batch import read
from ottla.wire.record import metadata as records
from tests.interop import server as servers
from tests.interop.oracle.side import Oracle, Side
from tests.interop.oracle.test_level import old
from tests.interop.oracle.test_setting import BROKER, DELETE, SET, alter
from tests.interop.oracle.test_switch import ask_all, begin, update
from tests.interop.server import Server

_LEAST, _HIGHEST = min(METADATA_VERSIONS), max(METADATA_VERSIONS)
_UPGRADE = 1
_QUIET_S, _PATIENCE_S = 1.0, 30.0
#: Written as time passes.
_ANY_TIME = ("NoOpRecord",)


@contextmanager
def pair(subject: Server, directory: Path, release: str) -> Iterator[Oracle]:
    """Apache Kafka and the subject, formatted at a release."""
    kinds = (servers.apache(), servers.kind(subject.name))
    made = [old(kind, directory / kind.name, release) for kind in kinds]
    for one in made:
        one.directory.mkdir()
        one.start()
    oracle = Oracle(made[0], made[1])
    try:
        yield oracle
    finally:
        oracle.close()
        for one in made:
            one.stop()


def look(side: Side, name: str) -> None:
    """What the level may decide: offers, features, and at least one change of each kind."""
    reply = side.ask("ApiVersions", 4, note=False, client_software_name="o", client_software_version="1")
    side.note("keys", sorted((each.api_key, each.min_version, each.max_version) for each in reply.api_keys))
    side.note("supported", sorted((each.name, each.min_version, each.max_version) for each in reply.supported_features))
    side.note("finalized", sorted((each.name, each.max_version_level) for each in reply.finalized_features))
    for feature, levels in (
        ("transaction.version", (1, 2)),
        ("group.version", (1,)),
        ("share.version", (1,)),
        ("streams.version", (1,)),
        ("eligible.leader.replicas.version", (1,)),
        ("kraft.version", (1,)),
    ):
        for level in levels:
            update(side, feature, level, _UPGRADE, validate_only=True)
    ask_all(side)
    _change_topics(side, name)
    _change_others(side, name)


def _change_topics(side: Side, name: str) -> None:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
    side.ask("CreateTopics", 7, topics=[topic], timeout_ms=15_000)
    side.await_topic(name, 1)
    side.ask("CreatePartitions", 3, topics=[{"name": name, "count": 2, "assignments": None}], timeout_ms=15_000)
    side.await_topic(name, 2)
    side.ask("DescribeTopicPartitions", 0, topics=[{"name": name}])
    moved = [{"name": name, "partitions": [{"partition_index": 0, "replicas": [1]}]}]
    side.ask("AlterPartitionReassignments", 0, topics=moved, timeout_ms=15_000)
    elected = [{"topic": name, "partitions": [0]}]
    side.ask("ElectLeaders", 2, election_type=0, topic_partitions=elected, timeout_ms=15_000)
    side.ask("DeleteTopics", 5, topic_names=[name], timeout_ms=15_000)


def _change_others(side: Side, name: str) -> None:
    side.producer_id()
    alter(side, BROKER, "1", ("log.cleaner.threads", SET, "1"), ("cordoned.log.dirs", SET, str(side.server.log_dir)))
    alter(side, BROKER, "1", ("cordoned.log.dirs", DELETE, None), ("log.cleaner.threads", DELETE, None))
    quota = {
        "entity": [{"entity_type": "user", "entity_name": name}],
        "ops": [{"key": "producer_byte_rate", "value": 1e6}],
    }
    side.ask("AlterClientQuotas", 1, entries=[quota])
    scram = {"name": name, "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"x" * 32}
    side.ask("AlterUserScramCredentials", 0, upsertions=[scram], deletions=[])
    _await_broker(side)
    side.ask("DescribeUserScramCredentials", 0, users=[{"name": name}])
    side.ask("UnregisterBroker", 0, broker_id=9)
    side.ask("AddRaftVoter", 0, cluster_id=None, timeout_ms=1000, voter_id=9, voter_directory_id=bytes(15) + b"9")
    side.ask("RemoveRaftVoter", 0, cluster_id=None, voter_id=9, voter_directory_id=bytes(15) + b"9")
    reply = side.ask("ListConfigResources", 1, note=False, resource_types=[])
    side.note("resources", [reply.error_code, sorted(each.resource_type for each in reply.config_resources)])
    described = side.ask("DescribeLogDirs", 5, note=False, topics=[])
    side.note("cordoned", [each.is_cordoned for each in described.results])


def settle(side: Side) -> None:
    """Until the node's log of the metadata has not grown for a while: brokers register anew at some levels."""
    _await_broker(side)
    deadline, since, size = monotonic() + _PATIENCE_S, monotonic(), -1
    while monotonic() < min(deadline, since + _QUIET_S):
        now = sum(1 for record, _ in _written(side) if type(record).__name__ not in _ANY_TIME)
        if now != size:
            since, size = monotonic(), now
        sleep(0.2)


def _await_directories(side: Side) -> None:
    """Until the broker has registered with its directories: a replica placed before has to be assigned to one later."""
    deadline = monotonic() + _PATIENCE_S
    while monotonic() < deadline:
        written = [record for record, _ in _written(side)]
        raised = [at for at, record in enumerate(written) if _level_of(record) >= DIRECTORIES_FROM]
        if raised and any(isinstance(record, records.RegisterBrokerRecord) for record in written[raised[0] :]):
            return
        sleep(0.05)
    raise AssertionError("the broker did not register its directories")


def _level_of(record: Any) -> int:
    raised = isinstance(record, records.FeatureLevelRecord) and record.name == "metadata.version"
    return int(record.feature_level) if raised else 0


def _await_broker(side: Side) -> None:
    """Until the broker takes topics: it may be fenced, or its directory cordoned, until its next heartbeats."""
    deadline = monotonic() + _PATIENCE_S
    while True:
        try:
            return side.settle()
        except AssertionError:
            if monotonic() > deadline:
                raise
            sleep(0.2)


def _written(side: Side) -> list[tuple[Any, int]]:
    """(record, version) of the log of the metadata."""
    found: list[tuple[Any, int]] = []
    for path in sorted((side.server.log_dir / "__cluster_metadata-0").glob("*.log")):
        for batch in read(path.read_bytes()):
            if not batch.header.is_control:
                found += [records.parse(record.value or b"") for record in batch.records()]
    return found


def note_records(side: Side) -> None:
    """The kinds and versions of records by level, in their order by name."""
    kinds: set[tuple[str, int]] = set()
    level = "bootstrap"
    for record, version in _written(side):
        if raised_to := _level_of(record):
            side.note(f"records at {level}", sorted(kinds))
            level, kinds = str(raised_to), set()
        elif type(record).__name__ not in _ANY_TIME and getattr(record, "cordoned_log_dirs", None) is None:
            # A cordon that is taken back at once may be over before a heartbeat says it.
            kinds.add((type(record).__name__, version))
    side.note(f"records at {level}", sorted(kinds))


def walk(levels: list[int]) -> Any:
    def script(side: Side) -> None:
        begin(side)
        settle(side)
        look(side, "at-first")
        settle(side)
        for before, level in zip([_LEAST, *levels], levels, strict=False):
            update(side, "metadata.version", level, _UPGRADE)
            if before < DIRECTORIES_FROM <= level:
                _await_directories(side)
            settle(side)
            look(side, f"at-{level}")
            settle(side)
        note_records(side)

    return script


def test_a_cluster_is_raised_over_the_levels_that_change_records(subject: Server, tmp_path: Path) -> None:
    with pair(subject, tmp_path, METADATA_VERSIONS[_LEAST].text) as oracle:
        oracle.compare(walk([14, 17, _HIGHEST]))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_cluster_is_raised_level_by_level(subject: Server, tmp_path: Path) -> None:
    with pair(subject, tmp_path, METADATA_VERSIONS[_LEAST].text) as oracle:
        oracle.compare(walk(list(range(_LEAST + 1, _HIGHEST + 1))))


@pytest.mark.long
@pytest.mark.parametrize("level", METADATA_VERSIONS)
def test_a_cluster_is_formatted_at_a_level(subject: Server, level: int, tmp_path: Path) -> None:
    with pair(subject, tmp_path, METADATA_VERSIONS[level].text) as oracle:
        oracle.compare(walk([]))
