"""A disk that takes no more: the node says so, keeps what it has, and goes on when there is room again.

The limit is RLIMIT_FSIZE, set on the running process from outside and taken away again: a write behind it fails as one
on a full disk does, half written where it crosses the limit. It needs neither a file system of its own nor root.
"""

import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ottla
from ottla.kernel.error import ErrorCode
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.list_groups import ListGroupsRequest
from tests.broker.wire_client import WireClient
from tests.crash.account import ENDS, FULL, SMALL, Producer, check, commit, committed, create, go_on_after, offer
from tests.crash.check import committed_values
from tests.crash.content import OpenTransaction
from tests.crash.inventory import Marks, again, marks
from tests.interop import server as servers
from tests.interop.server import Server

_SETTINGS = {"log.segment.bytes": "1048576", "offsets.topic.num.partitions": "1"}

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    one = Server(servers.ottla(), tmp_path, _SETTINGS)
    one.start()
    with WireClient(one.bootstrap) as client:
        create(client)
    try:
        yield one
    finally:
        one.kill()


def limit_files(server: Server, bytes_max: int) -> None:
    """No file of the node may grow beyond this."""
    _, hard = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (bytes_max, hard))


def lift_limit(server: Server) -> None:
    limit_files(server, resource.RLIM_INFINITY)
    _, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (hard, hard))


def forbid_new_files(server: Server) -> None:
    """The node may go on with the files that it has open, and open no other."""
    _, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (0, hard))


@ENDS
def test_a_full_disk_is_a_storage_error_of_its_partition_alone(server: Server, end: Callable[[Server], None]) -> None:
    with WireClient(server.bootstrap) as client:
        producer = Producer(client)
        for number in range(20):
            producer.send({FULL: bytes([number]) * 1000, SMALL: b"%d" % number})
        # The next batch crosses the limit: a part of it is written.
        limit_files(server, 20_000 + 20 * 80)
        answers = producer.send({FULL: b"x" * 2000, SMALL: b"small"})
        assert answers[FULL].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert answers[SMALL].error_code == 0
        check(client, producer)
        # A retry of the same sequence fails again and leaves no trace; with room it is written once.
        assert producer.send({FULL: b"x" * 2000})[FULL].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        lift_limit(server)
        assert producer.send({FULL: b"y" * 100})[FULL].error_code == 0
        check(client, producer)
    go_on_after(end, server, producer)


@ENDS
def test_a_segment_that_cannot_be_begun_leaves_nothing_behind(server: Server, end: Callable[[Server], None]) -> None:
    with WireClient(server.bootstrap) as client:
        producer = Producer(client)
        while len(producer.acknowledged[FULL]) < 10:
            producer.send({FULL: b"f" * 100_000})
        # The node imports what it needs for the answers while it can open a file.
        check(client, producer)
        forbid_new_files(server)
        assert producer.send({FULL: b"r" * 100_000})[FULL].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        # What still fits into the old segment is taken, and what has been taken is kept.
        assert producer.send({FULL: b"fits"})[FULL].error_code == 0
        assert producer.send({FULL: b"r" * 100_000})[FULL].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        check(client, producer)
        lift_limit(server)
        assert producer.send({FULL: b"r" * 100_000})[FULL].error_code == 0
        assert producer.send({FULL: b"after the roll"})[FULL].error_code == 0
        check(client, producer)
    go_on_after(end, server, producer)


@ENDS
@pytest.mark.parametrize("room_for_record", [False, True], ids=["no room for its record", "no room for its files"])
def test_a_topic_that_could_not_be_made_can_be_made_later(
    server: Server, room_for_record: bool, end: Callable[[Server], None]
) -> None:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="later", num_partitions=2, replication_factor=1)], timeout_ms=5000
    )
    with WireClient(server.bootstrap) as client:
        producer = Producer(client)
        producer.send({FULL: b"a", SMALL: b"b"})
        # The node imports what it needs for the answers while it can open a file.
        check(client, producer)
        forbid_new_files(server) if room_for_record else limit_files(server, 1)
        code = client.ask(request, 7).topics[0].error_code
        # Without room for its files there is a topic, but nobody leads it yet.
        assert code == (ErrorCode.NONE if room_for_record else ErrorCode.KAFKA_STORAGE_ERROR)
        check(client, producer)
        lift_limit(server)
        assert producer.send({SMALL: b"c"})[SMALL].error_code == 0
    end(server)
    server.start()
    with WireClient(server.bootstrap) as client:
        code = client.ask(request, 7).topics[0].error_code
        assert code == (ErrorCode.TOPIC_ALREADY_EXISTS if room_for_record else ErrorCode.NONE)
        assert [marks(client, ("later", index)).latest for index in (0, 1)] == [0, 0]
        check(client, producer)


@ENDS
def test_offsets_that_could_not_be_committed_are_not_committed(server: Server, end: Callable[[Server], None]) -> None:
    with WireClient(server.bootstrap) as client:
        producer = Producer(client)
        for number in range(50):
            producer.send({FULL: b"%d" % number})
        commit(client, 5)
        limit_files(server, 1)
        assert offer(client, 7) in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        # The coordinator comes back from what its log has, with the disk still full, and goes on when it is not.
        assert committed(client) == 5
        assert offer(client, 8) in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        lift_limit(server)
        commit(client, 9)
        assert committed(client) == 9
    end(server)
    server.start()
    with WireClient(server.bootstrap) as client:
        assert committed(client) == 9
        check(client, producer)


@pytest.mark.parametrize("dies", [False, True], ids=["the node lives", "the node is killed"])
def test_a_transaction_whose_marker_has_no_room_ends_when_there_is_some(server: Server, *, dies: bool) -> None:
    with WireClient(server.bootstrap) as client:
        producer = Producer(client)
        for _ in range(20):
            producer.send({FULL: b"x" * 1000})
        begun = OpenTransaction(server.bootstrap, "t", FULL)
        size = (server.log_dir / f"{FULL}-0" / f"{0:020}.log").stat().st_size
        # The coordinator's log is shorter, so that the decision is written and the marker is not.
        limit_files(server, size)
        request = EndTxnRequest(
            transactional_id="t", producer_id=begun.producer_id, producer_epoch=begun.epoch, committed=True
        )
        client.ask(request, 5)
        undecided = marks(client, (FULL, 0))
        assert undecided.last_stable_offset == begun.base_offset < undecided.latest
        lift_limit(server)
    if dies:
        server.kill()
        server.start()
    begun.end(server.bootstrap, committed=True)
    with WireClient(server.bootstrap) as client:
        again(lambda: marks(client, (FULL, 0)), _still_open)
        values = committed_values(client, FULL, 0)
        assert values == [b"x" * 1000] * 20 + [b"open"]


def _still_open(found: Marks) -> tuple[int]:
    """COORDINATOR_LOAD_IN_PROGRESS while a transaction has no end."""
    return (0 if found.last_stable_offset == found.latest else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,)


def test_what_a_node_imports_while_it_serves_leaves_no_compiled_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "ottla"
    shutil.copytree(Path(ottla.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    # `python -m` takes the package that is where it stands.
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    one = Server(servers.ottla(), tmp_path / "node", {})
    one.start()
    try:
        with WireClient(one.bootstrap) as client:
            assert client.ask(ListGroupsRequest(), 4).error_code == ErrorCode.NONE
    finally:
        one.kill()
    compiled = {path.name.partition(".")[0] for path in (package / "broker").rglob("*.pyc")}
    assert "dispatch" in compiled
    assert "group" not in compiled
