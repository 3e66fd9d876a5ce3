"""A leader and an observer of its log, each a machine; the messages between them are carried by hand."""

import random
from typing import Any

from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import METADATA_TOPIC, Uuid
from ottla.raft.checkpoint import Membership, SnapshotId, VoterEndpoint, VoterNode
from ottla.raft.connections import QuorumPeer
from ottla.raft.effect import (
    Answer,
    AnswerFetch,
    AnswerSnapshot,
    AppendControl,
    AppendReplicated,
    Commit,
    Effect,
    InstallSnapshot,
    LeaderChanged,
    Send,
    TruncateLog,
    WriteSnapshotPiece,
)
from ottla.raft.event import (
    AppendFailed,
    EntriesAppended,
    InstallFailed,
    LogTruncated,
    RequestDropped,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    SnapshotInstalled,
    Started,
    Synced,
    TimerExpired,
)
from ottla.raft.progress import LogReplica
from ottla.raft.quorum import Quorum, QuorumSettings
from ottla.raft.role import Election, Follower, Unattached, Voter
from ottla.raft.voters import VoterHistory
from ottla.wire.api import fetch_snapshot
from tests.raft.memory_log import MemoryLog

LEADER = Voter(1, Uuid(b"l" * 16))
OBSERVER = Voter(2, Uuid(b"o" * 16))
WHERE = (VoterEndpoint("CONTROLLER", "leader", 9093),)
BOOTSTRAP = QuorumPeer(-2, "leader", 9093)


class Pair:
    """A leader whose epoch is committed, and an observer that has just started."""

    def __init__(self, *, leader_records: int = 5, own: MemoryLog | None = None, snapshot: SnapshotId | None = None):
        self.now_ms = 1000
        self.leader_log, self.log = MemoryLog(), own or MemoryLog()
        self.leader_log.append(leader_records, 1)
        if snapshot is not None:
            self.leader_log.snapshot(snapshot, size=250)
            self.leader_log.begin_at(snapshot)
        voters = VoterHistory((VoterNode(LEADER, WHERE),))
        self.leader = Quorum(
            LEADER, voters, Election(1, 1), QuorumSettings(endpoints=WHERE), self.leader_log, random.Random(1)
        )
        started = self.leader.step(Started(self.leader_log.end_offset, 0, 0), self.now_ms)
        assert any(isinstance(effect, AppendControl) for effect in started)
        self.grow(1)
        settings = QuorumSettings(bootstrap=(BOOTSTRAP,), can_vote=False, fetch_snapshot_max_bytes=100)
        self.observer = Quorum(OBSERVER, VoterHistory(), Election(), settings, self.log, random.Random(1))
        self.effects = self.observer.step(Started(self.log.end_offset, 0, 0), self.now_ms)

    def grow(self, records: int) -> list[Effect]:
        """The leader's log has so many records more, and they are committed."""
        self.leader_log.append(records, self.leader.epoch)
        effects = self.leader.step(EntriesAppended(self.leader_log.end_offset, 10), self.now_ms)
        return effects + self.leader.step(Synced(self.leader_log.end_offset), self.now_ms)

    def ask(self) -> list[Effect]:
        """Carry the observer's request to the leader; what the leader does."""
        return self.leader.step(RequestReceived("ticket", "CONTROLLER", self.sent().request, 18), self.now_ms)

    def sent(self) -> Send:
        (found,) = [effect for effect in self.effects if isinstance(effect, Send)]
        return found

    def exchange(self) -> list[Effect]:
        """Carry the request and its answer; what the observer does."""
        sent, answers = self.sent(), self.ask()
        (answer,) = [each for each in answers if isinstance(each, Answer | AnswerFetch | AnswerSnapshot)]
        response: Any = answer.response
        if isinstance(answer, AnswerFetch):
            response.responses[0].partitions[0].records = b"batches"
        if isinstance(answer, AnswerSnapshot):
            rest = response.topics[0].partitions[0].size - answer.position
            response.topics[0].partitions[0].unaligned_records = b"x" * min(rest, answer.max_bytes)
        self.effects = self.observer.step(ResponseReceived(sent.ticket, response), self.now_ms)
        return self.effects

    def pass_pause(self) -> None:
        """Let half a fetch timeout pass: a full disk stays full, and every server would send the same again."""
        assert self.observer.deadline_ms() == self.now_ms + 1000
        self.now_ms += 999
        assert self.observer.step(TimerExpired(), self.now_ms) == []
        self.now_ms += 1
        self.effects = self.observer.step(TimerExpired(), self.now_ms)

    def appended(self, records: int, epoch: int) -> list[Effect]:
        self.log.append(records, epoch)
        self.effects = self.observer.step(EntriesAppended(self.log.end_offset, 10), self.now_ms)
        self.observer.validate()
        return self.effects


def test_an_observer_finds_the_leader_and_takes_its_log_up_to_the_high_watermark() -> None:
    pair = Pair()
    assert isinstance(pair.observer.role, Unattached)
    assert pair.sent().peer == BOOTSTRAP
    # The leader's epoch is higher: the answer names it, and where it is.
    found = pair.exchange()
    assert LeaderChanged(2, 1, WHERE) in found
    assert pair.observer.leader == QuorumPeer(1, "leader", 9093) == pair.sent().peer
    taken = pair.exchange()
    assert taken == [AppendReplicated(2, b"batches")]
    done = pair.appended(6, 2)
    assert Commit(6) in done
    assert pair.sent().request.topics[0].partitions[0].fetch_offset == 6
    # An observer does not sync before it fetches again.
    assert pair.observer.high_watermark == 6


def test_a_fetch_that_finds_nothing_waits_for_a_record_and_for_the_high_watermark() -> None:
    pair = Pair()
    pair.exchange()
    pair.exchange()
    pair.appended(6, 2)
    assert pair.ask() == []
    assert pair.leader.deadline_ms() == pair.now_ms + 500
    pair.leader_log.append(1, 2)
    (answer,) = [
        each for each in pair.leader.step(EntriesAppended(7, 10), pair.now_ms) if isinstance(each, AnswerFetch)
    ]
    assert (answer.offset, answer.response.responses[0].partitions[0].high_watermark) == (6, 6)


def test_a_fetch_that_waits_is_answered_when_its_time_has_come() -> None:
    pair = Pair()
    pair.exchange()
    pair.exchange()
    pair.appended(6, 2)
    assert pair.ask() == []
    pair.now_ms += 500
    (answer,) = pair.leader.step(TimerExpired(), pair.now_ms)
    assert isinstance(answer, Answer)
    assert answer.response.responses[0].partitions[0].error_code == ErrorCode.NONE


def test_an_observer_truncates_where_its_log_parts_from_the_leaders() -> None:
    own = MemoryLog()
    own.append(3, 1)
    own.append(9, 2)
    pair = Pair(own=own)
    # The leader's epoch 2 ends at 6, the observer's at 12: what is behind 6 is of no leader.
    assert pair.sent().request.topics[0].partitions[0].fetch_offset == 12
    assert TruncateLog(6) in pair.exchange()
    own.truncate(6)
    pair.effects = pair.observer.step(LogTruncated(6), pair.now_ms)
    assert pair.sent().request.topics[0].partitions[0].fetch_offset == 6


def test_an_observer_behind_the_leaders_start_fetches_the_snapshot_in_pieces() -> None:
    snapshot = SnapshotId(4, 1)
    pair = Pair(snapshot=snapshot)
    pair.exchange()
    pair.exchange()
    pieces = []
    for _ in range(3):
        pieces += [each for each in pair.exchange() if isinstance(each, WriteSnapshotPiece | InstallSnapshot)]
    assert pieces == [
        WriteSnapshotPiece(snapshot, 0, b"x" * 100),
        WriteSnapshotPiece(snapshot, 100, b"x" * 100),
        WriteSnapshotPiece(snapshot, 200, b"x" * 50),
        InstallSnapshot(snapshot),
    ]
    pair.log.restart(snapshot)
    membership = Membership(1, (VoterNode(LEADER, WHERE),))
    pair.effects = pair.observer.step(SnapshotInstalled(snapshot, membership), pair.now_ms)
    partition = pair.sent().request.topics[0].partitions[0]
    assert (partition.fetch_offset, partition.last_fetched_epoch) == (4, 1)
    assert (pair.observer.high_watermark, pair.observer.membership) == (4, membership)


def test_a_leader_that_does_not_answer_is_left_alone_for_a_moment() -> None:
    pair = Pair()
    pair.effects = pair.observer.step(RequestFailed(pair.sent().ticket), pair.now_ms)
    assert pair.effects == []
    assert pair.observer.deadline_ms() == pair.now_ms + 20
    pair.now_ms += 20
    pair.effects = pair.observer.step(TimerExpired(), pair.now_ms)
    assert pair.sent().peer == BOOTSTRAP


def test_the_leader_describes_its_observers() -> None:
    pair = Pair()
    pair.exchange()
    pair.exchange()
    pair.appended(6, 2)
    pair.ask()
    pair.now_ms += 30
    voters, observers = pair.leader.describe(pair.now_ms)
    assert [(each.key, each.end_offset, each.fetched_ms_ago) for each in voters] == [(LEADER, 6, 0)]
    assert [(each.key, each.end_offset, each.caught_up_ms_ago) for each in observers] == [(OBSERVER, 6, 30)]
    assert pair.leader.describe(pair.now_ms + 300_000)[1] == []


def test_an_observer_is_as_near_as_the_end_it_has_reached() -> None:
    """It has all that the leader had when it fetched before, or less (KIP-595, lastCaughtUpTimestamp)."""
    observer = LogReplica(OBSERVER)
    caught_up = []
    for offset, leader_end_offset, now_ms in ((0, 10, 100), (5, 20, 200), (20, 30, 300), (25, 40, 400), (40, 40, 500)):
        observer.fetched(offset, leader_end_offset, now_ms)
        caught_up.append(observer.caught_up_ms)
    assert caught_up == [-1, -1, 200, 200, 500]


def test_a_leader_that_became_a_follower_refuses_those_that_wait() -> None:
    pair = Pair()
    pair.exchange()
    pair.exchange()
    pair.appended(6, 2)
    pair.ask()
    role = pair.observer.role
    assert isinstance(role, Follower) and role.has_fetched
    # It is not the observer that makes it one: another leader of a later epoch does.
    pair.leader._member.become_follower(5, 3, (VoterEndpoint("CONTROLLER", "other", 9093),))
    effects = pair.leader._member.take_effects()
    (answer,) = [each for each in effects if isinstance(each, Answer)]
    partition = answer.response.responses[0].partitions[0]
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_fetch_that_waits_is_not_answered_once_its_sender_has_left() -> None:
    pair = Pair()
    pair.exchange()
    pair.exchange()
    pair.appended(6, 2)
    assert pair.ask() == []
    pair.leader.step(RequestDropped("ticket"), pair.now_ms)
    assert not any(isinstance(effect, AnswerFetch) for effect in pair.grow(1))


def test_batches_that_could_not_be_appended_are_fetched_again() -> None:
    pair = Pair()
    pair.exchange()
    assert AppendReplicated(2, b"batches") in pair.exchange()
    assert pair.observer.step(AppendFailed(), pair.now_ms) == []
    pair.pass_pause()
    assert pair.sent().request.topics[0].partitions[0].fetch_offset == 0
    assert AppendReplicated(2, b"batches") in pair.exchange()
    assert Commit(6) in pair.appended(6, 2)


def test_a_snapshot_that_was_damaged_is_fetched_again_from_its_beginning() -> None:
    snapshot = SnapshotId(4, 1)
    pair = Pair(snapshot=snapshot)
    for _ in range(4):
        pair.exchange()
    assert InstallSnapshot(snapshot) in pair.exchange()
    assert pair.observer.step(InstallFailed(), pair.now_ms) == []
    pair.pass_pause()
    # There may be a newer one: the leader gets a Fetch, as before the first piece.
    assert pair.sent().peer.node_id == LEADER.node_id
    assert pair.sent().request.topics[0].partitions[0].fetch_offset == 0
    pair.exchange()
    assert pair.sent().request.topics[0].partitions[0].position == 0
    assert WriteSnapshotPiece(snapshot, 0, b"x" * 100) in pair.exchange()


def test_a_fetch_of_a_snapshot_is_for_this_cluster_and_for_one_partition_of_the_metadata() -> None:
    pair = Pair(snapshot=SnapshotId(4, 1))
    pair.exchange()
    pair.exchange()

    def answered(**fields: Any) -> Any:
        partitions = fields.pop("partitions", 1)
        partition = fetch_snapshot.RequestPartitionSnapshot(
            partition=fields.pop("partition", 0),
            current_leader_epoch=pair.leader.epoch,
            snapshot_id=fetch_snapshot.SnapshotId(end_offset=4, epoch=1),
        )
        topic = fetch_snapshot.RequestTopicSnapshot(
            name=fields.pop("name", METADATA_TOPIC), partitions=[partition] * partitions
        )
        request = fetch_snapshot.FetchSnapshotRequest(topics=[topic], max_bytes=100, **fields)
        [answer] = pair.leader.step(RequestReceived("ticket", "CONTROLLER", request, 1), pair.now_ms)
        assert isinstance(answer, Answer | AnswerSnapshot)
        return answer.response

    assert answered(cluster_id="another").error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert answered(partitions=0).error_code == answered(partitions=2).error_code == ErrorCode.INVALID_REQUEST
    for name, partition in (("flights", 0), (METADATA_TOPIC, 1)):
        response = answered(name=name, partition=partition)
        [topic] = response.topics
        [told] = topic.partitions
        assert (response.error_code, topic.name, told.index) == (ErrorCode.NONE, name, partition)
        assert told.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert told.current_leader.leader_id == fetch_snapshot.LeaderIdAndEpoch().leader_id
    [told] = answered(cluster_id=None).topics[0].partitions
    assert (told.error_code, told.size, told.current_leader.leader_id) == (ErrorCode.NONE, 250, LEADER.node_id)
