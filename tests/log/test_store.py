"""All logs of a node: whose a directory is, what is written where, what is moved aside."""

import errno
import random
import struct
from contextlib import suppress
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.host.disk import HostDisk
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.log import checkpoint
from ottla.log.directory import closing
from ottla.log.directory.store import Store
from ottla.log.log import Log, LogSettings
from ottla.log.producer.snapshot import CorruptSnapshot, decode
from ottla.sim.disk import Crashed, SimDisk
from ottla.wire.batch import build

_SETTINGS = LogSettings(segment_index_bytes=1200, file_delete_delay_ms=100)
_ID = Uuid(bytes(15) + b"\x09")


def _disk(seed: int) -> SimDisk:
    disk = SimDisk(random.Random(seed))
    for path in ("/a", "/b"):
        disk.make_directory(path)
        properties = {"version": "1", "node.id": "1", "cluster.id": "c", "directory.id": path[1:]}
        checkpoint.write_properties(disk, f"{path}/meta.properties", properties)
    return disk


@pytest.fixture
def disk() -> SimDisk:
    return _disk(5)


def _open(disk: SimDisk, *dirs: str, **more: Any) -> Store:
    return Store.open(disk, dirs or ("/a",), now_ms=1000, settings_of=lambda _: _SETTINGS, **{"node_id": 1, **more})


def _text(disk: SimDisk, path: str) -> str:
    text = checkpoint.read_text(disk, path)
    assert text is not None
    return text


def _fill(store: Store, topic: str = "t", count: int = 3) -> None:
    log = store.create(topic, _ID, 0)
    for _ in range(count):
        log.append(build([(1000, b"k", b"v", [])]), leader_epoch=2, now_ms=1000)


def test_a_directory_that_is_not_ours_is_refused_in_words(disk: SimDisk) -> None:
    with pytest.raises(OttlaError, match="belongs to node 1, and this is node 2"):
        _open(disk, node_id=2)
    with pytest.raises(OttlaError, match="belongs to cluster c, and this is cluster d"):
        _open(disk, cluster_id="d")
    with pytest.raises(OttlaError, match="/none does not exist"):
        _open(disk, "/none")
    disk.make_directory("/empty")
    with pytest.raises(OttlaError, match="not formatted"):
        _open(disk, "/empty")
    store = _open(disk)
    with pytest.raises(OttlaError, match="in use"):
        _open(disk)
    store.close()
    _open(disk).close()


def test_what_a_clean_end_leaves_is_kafkas(disk: SimDisk) -> None:
    store = _open(disk)
    _fill(store)
    store.close()
    assert _text(disk, "/a/recovery-point-offset-checkpoint") == "0\n1\nt 0 3\n"
    assert _text(disk, "/a/replication-offset-checkpoint") == "0\n1\nt 0 3\n"
    assert _text(disk, "/a/log-start-offset-checkpoint") == "0\n0\n"
    assert _text(disk, "/a/.kafka_cleanshutdown") == '{"version":0,"brokerEpoch":-1}'
    assert _text(disk, "/a/t-0/leader-epoch-checkpoint") == "0\n1\n2 0\n"
    assert _text(disk, "/a/t-0/partition.metadata") == "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAACQ\n"
    assert disk.list("/a/t-0") == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    assert disk.open("/a/t-0/00000000000000000000.index").size() == 0
    assert disk.open("/a/t-0/00000000000000000000.timeindex").size() == 12


def test_an_active_segment_has_no_index_files_before_a_clean_end(disk: SimDisk) -> None:
    store = _open(disk)
    _fill(store)
    store.create("empty", _ID, 0)
    names = ["00000000000000000000.log", "partition.metadata"]
    assert disk.list("/a/t-0") == disk.list("/a/empty-0") == names
    store.close()
    more = ["00000000000000000000.index", "00000000000000000000.timeindex", "leader-epoch-checkpoint"]
    assert disk.list("/a/t-0") == sorted([*names, *more])
    assert disk.list("/a/empty-0") == names
    store = _open(disk)
    log = store.get(TopicPartition("empty", 0))
    assert log is not None
    for _ in range(100):
        log.append(build([(1000, b"k", b"v" * 100, [])]), leader_epoch=2, now_ms=1000)
    store.close()
    again = _open(disk).get(TopicPartition("empty", 0))
    assert again is not None
    assert (again.end_offset, again.topic_id) == (100, _ID)


def test_a_log_that_nobody_touched_costs_the_stop_nothing(disk: SimDisk) -> None:
    store = _open(disk)
    _fill(store)
    for partition in range(10):
        store.create("idle", _ID, partition)
    store.close()
    store = _open(disk)
    before = disk.effects
    store.close()
    # Three checkpoints and the mark, each made, written, synced, renamed, and its directory synced.
    assert disk.effects - before <= 4 * 5
    store = _open(disk)
    log = store.get(TopicPartition("t", 0))
    assert log is not None
    log.append(build([(1000, b"k", b"v", [])]), leader_epoch=2, now_ms=1000)
    store.close()
    again = _open(disk).get(TopicPartition("t", 0))
    assert again is not None
    assert again.end_offset == log.end_offset


def test_a_stop_syncs_of_a_log_what_has_content_and_its_directory(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = 0

    def count(_: SimDisk) -> bool:
        nonlocal counted
        counted += 1
        return False

    monkeypatch.setattr(SimDisk, "sync_fails", count)

    def cost(logs: int, *, produce: bool) -> int:
        """Syncs of a stop after a record in each of so many logs of a start."""
        store = _open(disk)
        for number in range(logs):
            found = store.get(TopicPartition(f"{logs}", number)) or store.create(f"{logs}", _ID, number)
            if produce:
                found.append(build([(1000, b"k", b"v", [])]), leader_epoch=2, now_ms=1000)
        before = counted
        store.close()
        return counted - before

    # The batches, the epochs, the directory; the second time only the batches have changed. The time index of a small
    # segment is made again by a start.
    assert cost(14, produce=True) - cost(4, produce=True) == 10 * 3
    assert cost(14, produce=True) - cost(4, produce=True) == 10
    assert cost(14, produce=False) == cost(4, produce=False)


def test_a_snapshot_of_producers_is_synced_once_and_again_after_a_failure(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = _open(disk).create("idempotent", _ID, 0)
    log.append(
        build([(1000, b"k", b"v", [])], producer_id=7, producer_epoch=0, base_sequence=0), leader_epoch=2, now_ms=1000
    )
    log.producers.end_offset = log.end_offset
    log.snapshots.take(log.producers)

    def no_descriptor_is_left(*_: Any, **__: Any) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(SimDisk, "open", no_descriptor_is_left)
        with pytest.raises(OSError, match="too many"):
            log.snapshots.sync()
    syncs: list[SimDisk] = []

    def count(one: SimDisk) -> bool:
        syncs.append(one)
        return False

    monkeypatch.setattr(SimDisk, "sync_fails", count)
    log.snapshots.sync()
    log.snapshots.sync()
    assert len(syncs) == 1
    # The one before may never have been the last at a sync: it is synced when the last one goes.
    log.producers.end_offset += 1
    log.snapshots.take(log.producers)
    log.snapshots.sync()
    log.snapshots.remove(log.end_offset + 1)
    log.snapshots.sync()
    assert len(syncs) == 3


@pytest.mark.parametrize("seed", range(10))
def test_what_was_closed_in_good_order_survives_a_power_failure(seed: int) -> None:
    disk = _disk(seed)
    disk.sync_directory("/")
    store = _open(disk)
    for topic in ("plain", "idempotent"):
        log = store.create(topic, _ID, 0)
        for number in range(3):
            producer: dict[str, Any] = (
                {"producer_id": 7, "producer_epoch": 0, "base_sequence": number} if topic == "idempotent" else {}
            )
            log.append(build([(1000, b"k", b"v", [])], **producer), leader_epoch=2, now_ms=1000)
    store.close()
    disk.crash()
    store = _open(disk)
    for topic, producers in (("plain", []), ("idempotent", [7])):
        found = store.get(TopicPartition(topic, 0))
        assert found is not None
        assert (found.end_offset, found.topic_id, found.epochs.latest) == (3, _ID, 2)
        assert list(found.producers.by_id) == producers
        assert found.offset_for_timestamp(1000, 3) == (1000, 0, 2)


@pytest.mark.parametrize("seed", range(10))
def test_what_a_second_stop_does_not_sync_is_made_again_after_a_power_failure(seed: int) -> None:
    disk = _disk(seed)
    disk.sync_directory("/")
    store = _open(disk)
    store.create("t", _ID, 0)
    for at_ms in (1000, 3000, 2000, 4000, 2500):
        log = store.get(TopicPartition("t", 0))
        assert log is not None
        log.append(build([(at_ms, b"k", b"v" * 900, [])]), leader_epoch=2, now_ms=1000)
        store.close()
        store = _open(disk)
    store.close()
    disk.crash()
    found = _open(disk).get(TopicPartition("t", 0))
    assert found is not None
    assert (found.end_offset, found.recovery_point, found.epochs.latest) == (5, 5, 2)
    assert found.max_timestamp() == (4000, 3, 2)
    assert [found.offset_for_timestamp(at_ms, 5) for at_ms in (1000, 3001)] == [(1000, 0, 2), (4000, 3, 2)]


def test_a_clean_start_believes_the_batches_of_a_small_log_and_not_its_indexes(disk: SimDisk) -> None:
    store = _open(disk)
    log = store.create("t", _ID, 0)
    for at_ms in (1000, 4000, 2000):
        log.append(build([(at_ms, b"k", b"v" * 900, [])]), leader_epoch=2, now_ms=1000)
    store.close()
    time_index = disk.open(f"{log.path}/{0:020}.timeindex")
    # It could be right: no checksum tells that it is not.
    time_index.write(struct.pack(">qi", 9000, 0), 0)
    time_index.close()
    found = _open(disk).get(TopicPartition("t", 0))
    assert found is not None
    assert found.max_timestamp() == (4000, 1, 2)


def test_the_clean_mark_holds_for_one_start(disk: SimDisk) -> None:
    store = _open(disk)
    _fill(store)
    store.close()
    _open(disk).abandon()
    assert not disk.exists("/a/.kafka_cleanshutdown")


def test_the_start_offset_survives_in_its_checkpoint(disk: SimDisk) -> None:
    store = _open(disk)
    _fill(store)
    log = store.get(TopicPartition("t", 0))
    assert log is not None
    log.advance_start_offset(2)
    store.checkpoint(1000)
    store.abandon()
    again = _open(disk).get(TopicPartition("t", 0))
    assert again is not None
    assert (again.start_offset, again.end_offset, again.topic_id) == (2, 3, _ID)


def test_a_new_log_goes_where_the_fewest_are(disk: SimDisk) -> None:
    store = _open(disk, "/a", "/b")
    for partition in range(4):
        store.create("t", _ID, partition)
    assert [store.directory_of(TopicPartition("t", partition)) for partition in range(4)] == ["/a", "/b", "/a", "/b"]
    assert store.directory_id("/b") == "b"
    with pytest.raises(KafkaError) as caught:
        store.create("t", Uuid(bytes(16)[:-1] + b"\x08"), 0)
    assert caught.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


def test_logs_count_in_their_directory_from_their_plan_to_their_end(disk: SimDisk) -> None:
    store = _open(disk, "/a", "/b")
    planned = [store.plan([TopicPartition(f"t{number}", 0)], _ID)[0] for number in range(4)]
    assert [each.directory for each in planned] == ["/a", "/b", "/a", "/b"]
    planned[1].give_up()
    for number in (0, 2, 3):
        planned[number].begin().adopt()
    store.delete(TopicPartition("t3", 0), 1)
    assert [store.plan([TopicPartition("u", number)], _ID)[0].directory for number in range(3)] == ["/b", "/b", "/a"]


def test_a_deleted_log_is_moved_aside_and_goes_later(disk: SimDisk) -> None:
    store = _open(disk)
    _fill(store)
    store.delete(TopicPartition("t", 0), 1000)
    assert store.get(TopicPartition("t", 0)) is None
    (aside,) = [name for name in disk.list("/a") if name.startswith("t-0")]
    assert aside.endswith("-delete")
    _fill(store, count=1)
    store.remove_deleted(1099)
    assert disk.exists(f"/a/{aside}")
    store.remove_deleted(1100)
    assert not disk.exists(f"/a/{aside}")
    log = store.get(TopicPartition("t", 0))
    assert log is not None
    assert log.end_offset == 1


def test_logs_that_are_of_no_topic_are_moved_aside_and_kept(disk: SimDisk) -> None:
    store = _open(disk)
    _fill(store)
    _fill(store, "u")
    store.close()
    store = _open(disk)
    assert store.delete_strays(lambda tp, _: tp.topic == "t", Mock()) == [TopicPartition("t", 0)]
    (aside,) = [name for name in disk.list("/a") if name.startswith("t-0")]
    assert aside.endswith("-stray")
    store.close()
    assert list(_open(disk).logs()) == [TopicPartition("u", 0)]


@pytest.mark.parametrize("seed", range(10))
def test_a_log_that_was_moved_aside_is_not_back_after_a_power_failure(seed: int) -> None:
    disk = _disk(seed)
    disk.sync_directory("/")
    store = _open(disk)
    _fill(store)
    store.close()
    disk.crash()
    store = _open(disk)
    assert len(store.logs()) == 1
    store.delete_strays(lambda tp, _: True, Mock())
    disk.crash()
    assert list(_open(disk).logs()) == []


def test_the_real_lock_holds_within_the_process(tmp_path: Any) -> None:
    host = HostDisk()
    checkpoint.write_properties(host, f"{tmp_path}/meta.properties", {"version": "1", "node.id": "1"})
    first = Store.open(host, [str(tmp_path)], node_id=1, now_ms=1, settings_of=lambda _: _SETTINGS)
    with pytest.raises(OttlaError, match="in use"):
        Store.open(host, [str(tmp_path)], node_id=1, now_ms=1, settings_of=lambda _: _SETTINGS)
    first.close()


@pytest.mark.parametrize("text", ["", "1\n0\n", "0\n", "0\n2\na 0 1\n", "0\n1\na b c\n", "0\n1\na 0\n", "0\nx\n"])
def test_a_checkpoint_that_does_not_read_is_said_to_be_corrupt(disk: SimDisk, text: str) -> None:
    checkpoint.write_text(disk, "/a/x", text)
    with pytest.raises(checkpoint.CorruptCheckpoint):
        checkpoint.read_offsets(disk, "/a/x")


def test_a_corrupt_recovery_checkpoint_means_that_all_is_read(disk: SimDisk) -> None:
    store = _open(disk)
    _fill(store)
    store.checkpoint(1000)
    store.abandon()
    checkpoint.write_text(disk, "/a/recovery-point-offset-checkpoint", "nonsense")
    again = _open(disk).get(TopicPartition("t", 0))
    assert again is not None
    assert (again.end_offset, again.recovery_point) == (3, 0)


def test_meta_properties_of_apache_are_read() -> None:
    found = checkpoint.read_properties(HostDisk(), "tests/golden/log/meta.properties")
    assert found == {
        "node.id": "1",
        "directory.id": "ZuLyBRqURyWuafii9CiUJg",
        "version": "1",
        "cluster.id": "MkU3OEVBNTcwNTJENDM2Qg",
    }


@pytest.mark.parametrize("data", [b"", bytes(10), b"\0\2" + bytes(8), b"\0\1" + bytes(4) + b"\0\0\0\1"])
def test_a_snapshot_that_does_not_read_is_said_to_be_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptSnapshot):
        decode(data)


def _many(store: Store, topic: str, *, first: int = 0) -> list[Log]:
    """Logs of plain and of idempotent records, of old names and new."""
    logs = []
    for number in range(6):
        log = store.get(TopicPartition(topic, number)) or store.create(topic, _ID, number)
        for at in range(first, first + 3):
            producer: dict[str, Any] = (
                {"producer_id": 7, "producer_epoch": 0, "base_sequence": at} if number % 2 else {}
            )
            log.append(build([(1000, b"k", b"v" * 900, [])], **producer), leader_epoch=2 + first, now_ms=1000)
        logs.append(log)
    return logs


def _check_many(store: Store, topic: str, end_offset: int) -> None:
    for number in range(6):
        found = store.get(TopicPartition(topic, number))
        assert found is not None
        assert (found.end_offset, found.recovery_point, found.epochs.latest) == (end_offset, end_offset, end_offset - 1)
        assert list(found.producers.by_id) == [7] * (number % 2)
        assert found.offset_for_timestamp(1000, 3) == (1000, 0, 2)


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few logs count as many."""
    monkeypatch.setattr(closing, "VOLUME_SYNC_LOGS_MIN", 2)


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("seed", range(10))
def test_what_was_synced_with_its_volume_survives_a_power_failure(seed: int) -> None:
    disk = _disk(seed)
    disk.sync_directory("/")
    for first in (0, 3):
        store = _open(disk)
        _many(store, "t", first=first)
        before = disk.volume_syncs
        store.close()
        assert disk.volume_syncs - before == 2
        disk.crash()
        assert disk.exists(f"/a/{checkpoint.CLEAN_SHUTDOWN}")
        store = _open(disk)
        _check_many(store, "t", first + 3)
        store.close()


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("fails", [1, 2, 3])
def test_a_stop_whose_volume_does_not_sync_leaves_no_mark_unless_each_file_does(fails: int) -> None:
    marked = 0
    for seed in range(20):
        disk = _disk(seed)
        disk.sync_directory("/")
        store = _open(disk)
        _many(store, "t")
        store._sync_names()
        disk.syncs_to_fail = fails
        # A file that the kernel has lost says so when it is synced alone. Some files need no sync, and may be lost.
        store.close()
        if disk.exists(f"/a/{checkpoint.CLEAN_SHUTDOWN}"):
            marked += 1
            disk.crash()
            _check_many(_open(disk), "t", 3)
    assert 0 < marked < 20 if fails == 1 else not marked


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("seed", range(5))
def test_a_volume_that_reports_no_failures_is_synced_file_by_file(seed: int) -> None:
    disk = _disk(seed)
    disk.sync_directory("/")
    disk.volume_reports_failures = False
    store = _open(disk)
    _many(store, "t")
    store.close()
    assert not disk.volume_syncs
    disk.crash()
    store = _open(disk)
    _check_many(store, "t", 3)


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("step", range(0, 120, 3))
def test_a_crash_in_a_stop_whose_volume_is_synced_leaves_what_was_synced_before(step: int) -> None:
    disk = _disk(step)
    disk.sync_directory("/")
    store = _open(disk)
    for log in _many(store, "t"):
        log.flush()
    _many(store, "t", first=3)
    disk.crash_at = disk.effects + step
    with suppress(Crashed):
        store.close()
    disk.crash()
    store = _open(disk)
    for number in range(6):
        found = store.get(TopicPartition("t", number))
        assert found is not None
        assert 3 <= found.end_offset <= 6
        assert found.epochs.entries() == [(2, 0), (5, 3)][: 1 + (found.end_offset > 3)]
        sent = found.producers.by_id.get(7)
        assert (sent is not None) == bool(number % 2)
        assert sent is None or sent.sent[-1].last_sequence == found.end_offset - 1
