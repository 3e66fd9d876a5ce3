"""What a node does to its metadata log for another leader, and what it says while there is none."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.metadata.durability import MetadataSync
from ottla.broker.metadata.file import MetadataFiles
from ottla.broker.metadata.followed_log import FollowedLog
from ottla.broker.metadata.images import Images
from ottla.broker.metadata.loader import load
from ottla.broker.metadata.metadata_log import MetadataLog, no_dial
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.log.log import Log, LogSettings
from ottla.raft.checkpoint import SnapshotId
from ottla.raft.effect import AnswerFetch, AnswerSnapshot, AppendReplicated, TruncateLog
from ottla.raft.event import AppendFailed, EntriesAppended, LogTruncated, ResignRequested
from ottla.raft.voters import VoterHistory
from ottla.sim.disk import SimDisk
from ottla.wire.api import fetch_snapshot as fetching
from ottla.wire.api.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.wire.batch import read
from tests.controller.place import Place, create


class _Follower:
    """Node 1's log up to `end`, and the batches that its leader has behind it: three topics, one batch each."""

    def __init__(self) -> None:
        leader = Place(SimDisk(Random(1)))
        leader.format()
        with leader.node() as log:
            start = log.log.end_offset
            for name in "abc":
                create(log, name)
            data = log.log.read(0, 1 << 20, end_offset=log.log.end_offset).bytes()
            topic_ends = [end for end in _ends(data) if end > start]
        self.place = Place(SimDisk(Random(1)))
        self.place.format()
        self.files = MetadataFiles(self.place.disk, "/data")
        loaded = load(self.files, LogSettings(retention_ms=-1, retention_bytes=-1), 0, VoterHistory())
        self.log, self.images, self.cuts = loaded.log, Images(), 0
        self.images.load(loaded)
        self.sync = MetadataSync(lambda: 0, lambda _: None, lambda _: None)
        self.followed = FollowedLog(self.log, self.files, self.images, self.sync, self.place.clock)
        self.data, self.ends, self.end = data, topic_ends, start
        self.sizes = [batch.header.size for batch in read(data)]

    def append(self, data: bytes, epoch: int = 1) -> Any:
        return self.followed.append(AppendReplicated(epoch, data))


def _ends(data: bytes) -> list[int]:
    return [batch.header.base_offset + batch.header.last_offset_delta + 1 for batch in read(data)]


@pytest.fixture
def follower() -> _Follower:
    return _Follower()


def test_a_followers_log_and_metadata_are_those_of_its_leader(follower: _Follower) -> None:
    event = follower.append(follower.data)
    assert event == EntriesAppended(follower.log.end_offset, len(follower.data), event.changes)
    # The voters of the log's first batch, and nothing of the records that are no one's but the controller's.
    assert [type(message).__name__ for _, message in event.changes] == ["KRaftVersionRecord", "VotersRecord"]
    assert set(follower.images.appended.topics) == {"a", "b", "c"}
    assert follower.images.committed.topics == {}
    assert follower.log.read(0, 1 << 20, end_offset=follower.log.end_offset).bytes() == follower.data


def test_a_follower_with_smaller_segments_than_its_leader_hears_of_every_change(follower: _Follower) -> None:
    follower.log.settings = LogSettings(retention_ms=-1, retention_bytes=-1, segment_bytes=max(follower.sizes))
    event = follower.append(follower.data)
    assert len(follower.log.bases) > 1
    assert event == EntriesAppended(follower.log.end_offset, len(follower.data), event.changes)
    assert len(event.changes) == 2
    assert set(follower.images.appended.topics) == {"a", "b", "c"}


@pytest.mark.parametrize("offset", [1, 2])
def test_a_follower_reports_the_segments_for_which_there_was_room(follower: _Follower, offset: int) -> None:
    sizes, log = follower.sizes, follower.log
    log.settings = LogSettings(retention_ms=-1, retention_bytes=-1, segment_bytes=max(sizes))
    roll, rolls = log.roll, []

    def fails_at_the_second(now_ms: int, base_offset: int | None = None) -> Any:
        rolls.append(base_offset)
        if len(rolls) == offset:
            raise OSError(errno.ENOSPC, "full")
        return roll(now_ms, base_offset)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Log, "roll", lambda _, *given: fails_at_the_second(*given))
        event = follower.append(follower.data)
    assert event == EntriesAppended(log.end_offset, log.size, event.changes)
    assert 0 < log.size < len(follower.data)
    rest = follower.append(follower.data[log.size :])
    assert rest.end_offset == log.end_offset
    assert set(follower.images.appended.topics) == {"a", "b", "c"}


@pytest.mark.parametrize("damage", ["what is there already", "a byte", "a later epoch"])
def test_nothing_is_appended_of_what_is_damaged_or_does_not_continue_the_log(follower: _Follower, damage: str) -> None:
    data, epoch, topics = bytearray(follower.data), 1, set[str]()
    if damage == "what is there already":
        follower.append(follower.data)
        topics = {"a", "b", "c"}
    elif damage == "a byte":
        data[80] ^= 1
    else:
        epoch = 0
    end = follower.log.end_offset
    assert follower.append(bytes(data), epoch) == AppendFailed()
    assert (follower.log.end_offset, set(follower.images.appended.topics)) == (end, topics)


def test_a_disk_that_takes_no_records_is_a_failed_append(follower: _Follower, caplog: pytest.LogCaptureFixture) -> None:
    disk = follower.place.disk
    data = [follower.data[: follower.sizes[0]], follower.data[follower.sizes[0] :]]
    for batches in data:
        caplog.clear()
        disk.fill(disk._used())
        for _ in range(3):
            assert follower.append(batches) == AppendFailed()
        [line] = caplog.messages
        assert line.startswith(f"cannot append the leader's metadata at offset {follower.log.end_offset}: ")
        disk.fill(None)
        assert isinstance(follower.append(batches), EntriesAppended)


def test_a_cut_takes_the_metadata_back(follower: _Follower) -> None:
    follower.append(follower.data)
    running = follower.sync._generation
    target = follower.ends[1]
    assert follower.followed.truncate(TruncateLog(target)) == LogTruncated(target)
    assert follower.log.end_offset == target
    assert set(follower.images.appended.topics) == {"a", "b"}
    assert follower.sync._generation == running + 1, "a flush that began before says nothing about what comes next"


def test_other_nodes_get_the_log_and_its_snapshots_as_they_ask(follower: _Follower) -> None:
    follower.append(follower.data)
    fetch = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData()])])
    sizes = [batch.header.size for batch in read(follower.data)]
    first, second = sizes[0], sizes[1]
    offset = _ends(follower.data)[0]
    for max_bytes, size in ((1, second), (second, second), (1 << 20, sum(sizes) - first)):
        answered = follower.followed.fetched(AnswerFetch(5, fetch, offset, max_bytes))
        assert answered is fetch
        assert answered.responses[0].partitions[0].records == follower.data[first : first + size]
    snapshot = follower.files.snapshots[0] if follower.files.snapshots else SnapshotId(0, 0)
    whole = follower.files.read_snapshot(snapshot, 0, 1 << 20)
    response = fetching.FetchSnapshotResponse(
        topics=[fetching.ResponseTopicSnapshot(partitions=[fetching.ResponsePartitionSnapshot()])]
    )
    answered = follower.followed.snapshot_fetched(AnswerSnapshot(5, response, snapshot, 7, 20))
    assert answered is response and answered.topics[0].partitions[0].unaligned_records == whole[7:27]


# ---- what a node says and does about its quorum


class _Quorum:
    """A metadata log's parts, as far as a stop or a report needs them."""

    def __init__(self, *, leads: bool = True, voters: int = 3, failure: OSError | None = None) -> None:
        self.told: list[Any] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.cancelled = 0
        self.idle: list[Callable[[], None]] = []
        quorum = SimpleNamespace(leads=leads, epoch=4, leader=None, high_watermark=-1)
        self.failures: list[str] = []
        network = SimpleNamespace(when_idle=self.idle.append, failures=self.failures)
        self.quorum = quorum
        raft = SimpleNamespace(
            quorum=quorum,
            membership=SimpleNamespace(voters=range(voters)),
            voters=range(voters),
            sync=SimpleNamespace(failure=failure),
            network=network,
            receive=self.told.append,
        )
        log: Any = object.__new__(MetadataLog)
        self.log = log
        self.log.raft = raft
        self.log._settings = SimpleNamespace(controller_quorum_request_timeout_ms=2500, node_id=1)
        self.log._loop = self
        self.log._cluster_id = "ours"
        self.log._controller = SimpleNamespace(is_active=False)
        self.log.on_failure = self.told.append

    def call_later(self, seconds: float, do: Callable[[], None]) -> Any:
        self.timers.append((seconds, do))
        return self

    def cancel(self) -> None:
        self.cancelled += 1

    def resign(self) -> None:
        self.log.resign(lambda: self.told.append("done"))


@pytest.mark.parametrize("first", ["the others know", "they never do"])
def test_a_leader_that_stops_tells_the_other_voters_and_waits_for_them_no_longer_than_a_request(first: str) -> None:
    quorum = _Quorum()
    quorum.resign()
    assert quorum.told == [ResignRequested(4)] and [seconds for seconds, _ in quorum.timers] == [2.5]
    ends = [quorum.idle[0], quorum.timers[0][1]]
    for end in ends if first == "the others know" else reversed(ends):
        end()
        assert quorum.told == [ResignRequested(4), "done"]
    assert quorum.cancelled == 1


@pytest.mark.parametrize(
    "quorum",
    [_Quorum(leads=False), _Quorum(voters=1), _Quorum(failure=OSError())],
    ids=["a follower", "the only voter", "a log that has failed"],
)
def test_whoever_has_nothing_to_hand_over_stops_at_once(quorum: _Quorum) -> None:
    quorum.resign()
    assert (quorum.told, quorum.timers) == (["done"], [])
    quorum.log._loop = None
    quorum.resign()
    assert quorum.told == ["done", "done"]


def test_two_voters_hand_over_and_a_node_without_a_loop_does_not() -> None:
    quorum = _Quorum(voters=2)
    quorum.resign()
    assert quorum.told == [ResignRequested(4)]
    quorum.log._loop = None
    quorum.resign()
    assert quorum.told == [ResignRequested(4), "done"]


@pytest.mark.parametrize(
    ("voters", "failures", "said"),
    [
        (3, [], ""),
        (1, ["h:1 refused"], "h:1 refused"),
        (
            2,
            ["h:1 refused"],
            "h:1 refused (the quorum needs 2 of its 2 voters: start them, or check their addresses)",
        ),
        (
            5,
            ["h:1 refused", "i:2 timed out"],
            "h:1 refused; i:2 timed out (the quorum needs 3 of its 5 voters: start them, or check their addresses)",
        ),
    ],
)
def test_trouble_is_told_while_there_is_no_leader(voters: int, failures: list[str], said: str) -> None:
    quorum = _Quorum(voters=voters)
    quorum.failures += failures
    assert (quorum.log.leader, quorum.log.trouble) == (None, said)
    quorum.quorum.leader = (2, "h", 9093)
    assert (quorum.log.leader.node_id, quorum.log.trouble) == (2, "")
    quorum.quorum.leader, quorum.log._controller.is_active = None, True
    assert (quorum.log.leader.node_id, quorum.log.trouble) == (1, "")


@pytest.mark.parametrize("high_watermark", [-1, 0, 9])
def test_a_node_that_has_never_seen_its_cluster_ends_at_a_stranger(
    high_watermark: int, caplog: pytest.LogCaptureFixture
) -> None:
    quorum = _Quorum()
    quorum.quorum.high_watermark = high_watermark
    quorum.log._refused("h:9093")
    if high_watermark >= 0:
        assert quorum.told == [] and "h:9093 belongs to another cluster than ours" in caplog.text
    else:
        (failure,) = quorum.told
        assert str(failure).startswith("the controller at h:9093 belongs to another cluster than ours, ")


def test_a_cluster_of_one_dials_no_one() -> None:
    with pytest.raises(OSError, match="h:9093 cannot be reached from here"):
        no_dial("h", 9093)


def test_a_log_that_could_not_be_written_when_time_passed_is_tried_a_second_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    place = Place(SimDisk(Random(1)), metadata_max_idle_interval_ms="500")
    place.format()
    timers: list[Any] = []

    def call_later(seconds: float, do: Callable[[], None]) -> Any:
        timers.append((seconds, do))
        return SimpleNamespace(cancel=lambda: None)

    with place.node(crashes=True) as log:
        log._loop = SimpleNamespace(call_later=call_later)  # type: ignore[assignment]
        log._plan()
        assert timers[-1][0] == 0.5
        place.clock.advance(500)

        def fails() -> None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")

        log.time_passed, passed = fails, log.time_passed  # type: ignore[method-assign]
        timers[-1][1]()
        assert "cannot write the metadata log; will retry" in caplog.text
        assert [seconds for seconds, _ in timers] == [0.5, 1.0]
        log.time_passed = passed  # type: ignore[method-assign]
        end = log.log.end_offset
        place.clock.advance(1000)
        timers[-1][1]()
        assert log.log.end_offset == end + 1 and [seconds for seconds, _ in timers] == [0.5, 1.0, 0.5]


def test_a_follower_fetches_as_much_as_is_set_and_the_largest_batch_fits_into_a_segment() -> None:
    """A follower that is far behind writes what it fetches at once into as many segments as it needs."""
    place = Place(
        SimDisk(Random(1)), metadata_log_segment_bytes="8388608", controller_quorum_fetch_max_bytes="16777216"
    )
    place.format()
    with place.node() as log:
        of_log, of_quorum = log.log.settings, log.raft.quorum._member.settings
        assert of_quorum.fetch_max_bytes == 16777216
        assert of_log.segment_bytes >= of_log.max_message_bytes
