"""A file system of its own that is full: every write of the node is an ENOSPC, and what it has acknowledged stays.

`test_full_disk.py` does the same with a limit on the size of files, which fails other calls: here a file may grow while
another may not, nothing can be made, and a write ends at the page that still fitted.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.kernel.error import ErrorCode
from ottla.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.api.end_txn import EndTxnRequest
from tests.broker.wire_client import WireClient
from tests.crash.account import ENDS, FULL, SMALL, Producer, check, commit, committed, create, go_on_after, offer
from tests.crash.check import committed_values
from tests.crash.content import OpenTransaction
from tests.crash.inventory import Entry, Marks, again, marks, records
from tests.crash.room import Room
from tests.interop import server as servers
from tests.interop.server import Server

_SETTINGS = {
    "log.segment.bytes": "1048576",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.flush.offset.checkpoint.interval.ms": "200",
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "log.cleaner.backoff.ms": "100",
}
_SIZE_BYTES = 8 << 20
_INODES = 400
#: What `again` asks again for.
_AGAIN = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
_GONE = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    one = Room(tmp_path / "data", _SIZE_BYTES, _INODES)
    try:
        yield one
    finally:
        one.close()


@pytest.fixture
def server(tmp_path: Path, room: Room) -> Iterator[Server]:
    kind = servers.ottla()
    kind = replace(kind, format=(*room.enter, *kind.format), start=(*room.enter, *kind.start))
    one = Server(kind, tmp_path, _SETTINGS)
    one.start()
    with WireClient(one.bootstrap) as client:
        create(client)
    try:
        yield one
    finally:
        one.kill()


@ENDS
def test_records_without_room_are_refused_and_the_others_stay(
    server: Server, room: Room, end: Callable[[Server], None]
) -> None:
    with WireClient(server.bootstrap) as client:
        producer = Producer(client)
        for number in range(20):
            producer.send({FULL: bytes([number]) * 1000, SMALL: b"%d" % number})
        # Some pages are left: a part of the batch is written.
        room.fill(left_bytes=3 * 4096)
        assert producer.send({FULL: b"x" * 30_000})[FULL].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        check(client, producer)
        # The last page of a file has room where the disk has none.
        assert producer.send({SMALL: b"small"})[SMALL].error_code == 0
        assert producer.send({FULL: b"x" * 30_000})[FULL].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        room.free()
        assert producer.send({FULL: b"y" * 30_000})[FULL].error_code == 0
        check(client, producer)
    go_on_after(end, server, producer)


@ENDS
def test_a_segment_that_finds_no_room_for_its_files_is_begun_later(
    server: Server, room: Room, end: Callable[[Server], None]
) -> None:
    with WireClient(server.bootstrap) as client:
        producer = Producer(client)
        while len(producer.acknowledged[FULL]) < 10:
            producer.send({FULL: b"f" * 100_000})
        room.forbid_files()
        assert producer.send({FULL: b"r" * 100_000})[FULL].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert producer.send({FULL: b"fits"})[FULL].error_code == 0
        room.fill()
        assert producer.send({FULL: b"r" * 100_000})[FULL].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        check(client, producer)
        room.free()
        assert producer.send({FULL: b"r" * 100_000})[FULL].error_code == 0
        assert producer.send({FULL: b"after the roll"})[FULL].error_code == 0
        check(client, producer)
    go_on_after(end, server, producer)


@ENDS
def test_a_topic_without_room_can_be_made_when_there_is_some(
    server: Server, room: Room, end: Callable[[Server], None]
) -> None:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="later", num_partitions=40, replication_factor=1)], timeout_ms=5000
    )
    with WireClient(server.bootstrap) as client:
        producer = Producer(client)
        producer.send({FULL: b"a", SMALL: b"b"})
        room.fill()
        room.forbid_files()
        code = client.ask(request, 7).topics[0].error_code
        assert code in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
        check(client, producer)
        room.free()
        assert producer.send({SMALL: b"c"})[SMALL].error_code == 0
    end(server)
    server.start()
    with WireClient(server.bootstrap) as client:
        # There is the topic, whole, or there is none of it.
        again_code = client.ask(request, 7).topics[0].error_code
        assert again_code == (ErrorCode.NONE if code else ErrorCode.TOPIC_ALREADY_EXISTS)
        assert [marks(client, ("later", index)).latest for index in range(40)] == [0] * 40
        check(client, producer)


@ENDS
def test_commits_without_room_are_refused_and_the_last_one_stays(
    server: Server, room: Room, end: Callable[[Server], None]
) -> None:
    with WireClient(server.bootstrap) as client:
        producer = Producer(client)
        producer.send({FULL: b"a"})
        commit(client, 5)
        room.fill()
        last = _commit_until_refused(client, 5)
        # The coordinator comes back from what its log has, with the disk still full, and goes on when it is not.
        assert committed(client) == last
        room.free()
        commit(client, last + 7)
        assert committed(client) == last + 7
    end(server)
    server.start()
    with WireClient(server.bootstrap) as client:
        assert committed(client) == last + 7
        check(client, producer)


def _commit_until_refused(client: WireClient, offset: int) -> int:
    """Commit until the last page of the log is full; the last offset that was confirmed."""
    for _ in range(200):
        code = offer(client, offset + 1)
        if code in _GONE:
            return offset
        assert code == 0
        offset += 1
    raise AssertionError("a full disk takes everything")


@pytest.mark.parametrize("dies", [False, True], ids=["the node lives", "the node is killed"])
def test_a_marker_without_room_is_written_when_there_is_some(server: Server, room: Room, *, dies: bool) -> None:
    with WireClient(server.bootstrap) as client:
        producer = Producer(client)
        begun = OpenTransaction(server.bootstrap, "t", FULL)
        # Its offset is taken.
        producer.acknowledged[FULL].append(b"open")
        room.fill()
        # What is left of the last page goes too; the coordinator's log has its own.
        while producer.send({FULL: b"x" * 20})[FULL].error_code == 0:
            pass
        request = EndTxnRequest(
            transactional_id="t", producer_id=begun.producer_id, producer_epoch=begun.epoch, committed=True
        )
        client.ask(request, 5)
        undecided = marks(client, (FULL, 0))
        assert undecided.last_stable_offset == begun.base_offset < undecided.latest
        room.free()
    if dies:
        server.kill()
        server.start()
    begun.end(server.bootstrap, committed=True)
    with WireClient(server.bootstrap) as client:
        again(lambda: marks(client, (FULL, 0)), _still_open)
        assert committed_values(client, FULL, 0) == producer.acknowledged[FULL]


def _still_open(found: Marks) -> tuple[int]:
    return (0 if found.last_stable_offset == found.latest else _AGAIN,)


@ENDS
def test_a_compaction_without_room_takes_nothing_away_and_is_done_later(
    server: Server, room: Room, end: Callable[[Server], None]
) -> None:
    configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    entries = [CreatableTopicConfig(name=name, value=value) for name, value in configs.items()]
    topic = CreatableTopic(name="keys", num_partitions=1, replication_factor=1, configs=entries)
    with WireClient(server.bootstrap) as client:
        assert client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7).topics[0].error_code == 0
        producer = Producer(client)
        values: list[bytes] = []
        producer.acknowledged["keys"] = values
        room.fill(left_bytes=2 << 20)
        # The cleaner has work from the second segment on, and by then there is no inode for it.
        room.forbid_files()
        while producer.send({"keys": b"v%d" % len(values) * 40_000}, key=b"one")["keys"].error_code == 0:
            pass
        assert [each.value for each in _keys(client)] == values
        room.free()
        while len(values) < 30:
            assert producer.send({"keys": b"v%d" % len(values) * 40_000}, key=b"one")["keys"].error_code == 0
    end(server)
    server.start()
    with WireClient(server.bootstrap) as client:
        # Only the active segment is left as it is.
        again(lambda: _keys(client), lambda found: (_AGAIN if len(found) > 12 else 0,))
        found = [each.value for each in _keys(client)]
        assert found == values[-len(found) :]


def _keys(client: WireClient) -> list[Entry]:
    return list(records(client, ("keys", 0), marks(client, ("keys", 0))))


@ENDS
def test_a_node_without_room_starts_when_there_is_some(
    server: Server, room: Room, end: Callable[[Server], None]
) -> None:
    with WireClient(server.bootstrap) as client:
        producer = Producer(client)
        for number in range(5):
            producer.send({FULL: b"%d" % number, SMALL: b"s"})
        commit(client, 3)
        room.fill()
        room.forbid_files()
    end(server)
    with pytest.raises(AssertionError) as ended:
        server.start()
    assert "No space left on device" in str(ended.value)
    assert "Traceback" not in str(ended.value)
    room.free()
    server.start()
    with WireClient(server.bootstrap) as client:
        assert committed(client) == 3
        check(client, producer)
    go_on_after(end, server, producer)
