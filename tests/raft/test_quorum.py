"""The quorum of one, as a machine."""

import random
from dataclasses import replace
from typing import Any

from ottla.kernel.ids import NO_UUID, Uuid
from ottla.raft.checkpoint import Membership, SnapshotId, VoterEndpoint, VoterNode, leader_change_record
from ottla.raft.effect import (
    AppendControl,
    AppendEntries,
    AppendNoOp,
    CleanLog,
    Commit,
    Effect,
    LeaderChanged,
    SaveElection,
    Send,
    Sync,
    WriteSnapshot,
)
from ottla.raft.event import (
    EntriesAppended,
    Event,
    SnapshotFailed,
    SnapshotInstalled,
    SnapshotWritten,
    Started,
    Submitted,
    Synced,
    TimerExpired,
)
from ottla.raft.quorum import Quorum, QuorumSettings
from ottla.raft.role import Election, Follower, Leader, Prospective, SnapshotFetch, Voter
from ottla.raft.voters import VoterHistory
from tests.raft.memory_log import MemoryLog

ME = Voter(1, Uuid(b"m" * 16))
WHERE = (VoterEndpoint("CONTROLLER", "here", 9093),)
NONE = Election()
DEFAULTS = QuorumSettings()


class Scene:
    """A quorum of one; every step is checked."""

    def __init__(self, election: Election = NONE, settings: QuorumSettings = DEFAULTS, *, end_offset: int = 0) -> None:
        self.log = MemoryLog()
        self.log.append(end_offset, election.epoch)
        history = VoterHistory((VoterNode(ME, WHERE),))
        settings = replace(settings, endpoints=WHERE)
        self.quorum = Quorum(ME, history, election, settings, self.log, random.Random(1))
        self.now_ms = 1000
        self.started = self.step(Started(end_offset, 0, 0))

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    def step(self, event: Event) -> list[Effect]:
        effects = self.quorum.step(event, self.now_ms)
        self.quorum.validate()
        return effects

    def append(self, records: int = 1, size: int = 100) -> list[Effect]:
        """The log has got so many records more."""
        self.log.append(records, self.quorum.epoch)
        return self.step(EntriesAppended(self.end_offset, size))

    def sync(self) -> list[Effect]:
        return self.step(Synced(self.end_offset))


def led(**settings: Any) -> Scene:
    """A scene whose epoch has begun and is committed."""
    scene = Scene(NONE, QuorumSettings(**settings))
    scene.append(3)
    scene.sync()
    return scene


def test_the_vote_is_saved_before_the_epoch_is_led_and_that_before_it_writes() -> None:
    scene = Scene(Election(4, leader_id=1))
    assert scene.started == [
        SaveElection(Election(5, voted=ME)),
        SaveElection(Election(5, leader_id=1)),
        AppendControl(5, (leader_change_record(1, (ME,), (ME,)),)),
        LeaderChanged(5, 1, WHERE),
    ]


def test_no_epoch_is_led_twice() -> None:
    epochs = []
    election = Election()
    for _ in range(3):
        scene = Scene(election)
        election = scene.quorum.election
        epochs.append(scene.quorum.epoch)
    assert epochs == [1, 2, 3]


def test_what_a_snapshot_holds_needs_no_sync_at_the_start_and_what_is_behind_it_does() -> None:
    for end_offset, effects in ((10, 0), (11, 1)):
        log = MemoryLog()
        log.append(end_offset, 1)
        other = VoterNode(Voter(2, Uuid(b"o" * 16)), WHERE)
        history = VoterHistory((VoterNode(ME, WHERE), other))
        quorum = Quorum(ME, history, Election(1), replace(DEFAULTS, endpoints=WHERE), log, random.Random(1))
        started = quorum.step(Started(end_offset, 10, 0), 1000)
        assert started.count(Sync()) == effects


def test_a_voter_starts_no_election_while_it_installs_a_snapshot() -> None:
    """That may take longer than the fetch timeout, and a role that comes meanwhile drops the snapshot."""
    others = [VoterNode(Voter(node_id, Uuid(bytes([node_id]) * 16)), WHERE) for node_id in (2, 3)]
    history = VoterHistory((VoterNode(ME, WHERE), *others))
    quorum = Quorum(ME, history, Election(1, 2), replace(DEFAULTS, endpoints=WHERE), MemoryLog(), random.Random(1))
    quorum.step(Started(0, 0, 0), 1000)
    role = quorum.role
    assert isinstance(role, Follower)
    role.fetching, role.is_applying = SnapshotFetch(SnapshotId(40, 1)), True
    quorum.step(TimerExpired(), 100_000)
    assert quorum.role is role and (quorum.deadline_ms() or 100_001) > 100_000
    quorum.step(SnapshotInstalled(SnapshotId(40, 1), Membership(1, history.last.voters)), 200_000)
    assert quorum.role is role and not role.is_applying
    quorum.step(TimerExpired(), 300_000)
    after: object = quorum.role
    assert isinstance(after, Prospective)


def test_a_vote_given_before_a_crash_is_not_given_again_in_its_epoch() -> None:
    scene = Scene(Election(7, voted=ME))
    assert scene.quorum.epoch == 8


def test_nothing_is_committed_before_it_is_synced() -> None:
    scene = led()
    assert scene.append() == [Sync()]
    assert isinstance(scene.quorum.role, Leader)
    assert scene.quorum.role.high_watermark == 3
    assert scene.sync() == [Commit(4)]


def test_records_of_earlier_epochs_are_committed_with_the_first_of_this_one() -> None:
    scene = Scene(Election(1, leader_id=1), end_offset=10)
    assert scene.step(Synced(10)) == []
    scene.append()
    assert scene.sync() == [Commit(11)]


def test_a_sync_that_began_earlier_commits_only_what_it_saw() -> None:
    scene = led()
    scene.append()
    first = scene.end_offset
    scene.append()
    assert scene.step(Synced(first)) == [Commit(first)]
    assert scene.step(Synced(first)) == []
    assert scene.sync() == [Commit(first + 1)]


def test_what_is_submitted_is_written_in_the_leaders_epoch() -> None:
    assert led().step(Submitted(["a record"])) == [AppendEntries(1, ["a record"])]


def test_kraft_version_may_be_set_to_what_it_is() -> None:
    quorum = led().quorum
    assert quorum.membership.kraft_version == 0
    assert quorum.version_refusal(0) is None


# ---- snapshots


def test_a_snapshot_is_due_after_so_many_bytes() -> None:
    scene = led(snapshot_bytes=1000)
    scene.append(size=899)
    assert scene.sync() == [Commit(4)]
    scene.append(size=1)
    assert scene.sync() == [Commit(5), WriteSnapshot(5)]
    assert scene.step(SnapshotWritten(5)) == [CleanLog(5)]
    scene.append(size=999)
    assert scene.sync() == [Commit(6)]


def test_a_snapshot_that_ends_behind_a_newer_one_is_not_the_newest() -> None:
    """One was installed from elsewhere while an older one was written."""
    scene = led(snapshot_bytes=200)
    scene.append()
    assert WriteSnapshot(4) in scene.sync()
    snapshots = scene.quorum._snapshots
    snapshots.end_offset = 9
    scene.quorum.step(SnapshotWritten(4), scene.now_ms)
    assert snapshots.end_offset == 9


def test_one_snapshot_is_written_at_a_time() -> None:
    scene = led(snapshot_bytes=200)
    scene.append()
    assert WriteSnapshot(4) in scene.sync()
    scene.append()
    assert scene.sync() == [Commit(5)]


def test_a_snapshot_that_failed_is_tried_again_after_as_many_bytes() -> None:
    scene = led(snapshot_bytes=200)
    scene.append()
    assert WriteSnapshot(4) in scene.sync()
    scene.append()
    assert scene.sync() == [Commit(5)]
    assert scene.step(SnapshotFailed()) == []
    scene.append()
    assert scene.sync() == [Commit(6)]
    scene.append()
    assert scene.sync() == [Commit(7), WriteSnapshot(7)]


def test_a_snapshot_is_due_after_an_hour_with_a_record() -> None:
    scene = led()
    scene.now_ms += 3_599_999
    scene.append()
    assert scene.sync() == [Commit(4)]
    scene.now_ms += 1
    scene.append()
    assert scene.sync() == [Commit(5), WriteSnapshot(5)]


def test_bytes_from_before_a_restart_count() -> None:
    log = MemoryLog()
    log.append(50, 1)
    history = VoterHistory((VoterNode(ME, WHERE),))
    settings = QuorumSettings(snapshot_bytes=1000, endpoints=WHERE)
    quorum = Quorum(ME, history, Election(1, leader_id=1), settings, log, random.Random(1))
    quorum.step(Started(50, 10, 950), 0)
    log.append(1, 2)
    quorum.step(EntriesAppended(51, 60), 0)
    assert quorum.step(Synced(51), 0) == [Commit(51), WriteSnapshot(51)]


# ---- NoOps


def test_an_idle_leader_says_that_it_lives_when_it_is_asked_to() -> None:
    scene = led(idle_interval_ms=500)
    assert scene.quorum.deadline_ms() == scene.now_ms + 500
    scene.now_ms += 499
    assert scene.step(TimerExpired()) == []
    scene.now_ms += 1
    assert scene.step(TimerExpired()) == [AppendNoOp(1)]
    scene.append()
    assert scene.quorum.deadline_ms() == scene.now_ms + 500


def test_a_leader_that_is_not_asked_to_is_silent() -> None:
    scene = led()
    assert scene.quorum.deadline_ms() is None
    scene.now_ms += 10_000
    assert scene.step(TimerExpired()) == []


def test_a_request_is_for_the_voter_that_it_names_by_id_and_directory() -> None:
    scene = Scene()
    other = Uuid(b"o" * 16)
    electing = scene.quorum._peer_protocol.electing
    assert [
        electing._is_me(voter_id, directory)
        for voter_id, directory in (
            # Version 0 of the requests names no voter.
            (-1, NO_UUID), (-1, other), (1, ME.directory_id), (1, NO_UUID),
            # Voter 0 is a voter like any other.
            (1, other), (0, ME.directory_id), (0, NO_UUID), (2, ME.directory_id),
        )
    ] == [True] * 4 + [False] * 4  # fmt: skip


def test_a_follower_whose_leader_owes_an_answer_does_not_wake_up_for_its_update() -> None:
    leader = VoterNode(Voter(2), (VoterEndpoint("CONTROLLER", "there", 9093),))
    history, log = VoterHistory((VoterNode(Voter(1), WHERE), leader)), MemoryLog()
    log.append(3, 4)
    settings = QuorumSettings(endpoints=WHERE, answer_timeout_ms=5_000)
    quorum = Quorum(ME, history, Election(4, leader_id=2), settings, log, random.Random(1))
    started = quorum.step(Started(3, 0, 0), 1_000)
    sync = quorum.step(Synced(3), 1_000)
    role = quorum.role
    assert isinstance(role, Follower)
    assert [each for each in (*started, *sync) if isinstance(each, Send)]
    # The leader is heard of, and the fetch waits there.
    due_ms, role.fetch_deadline_ms = role.update_deadline_ms, 60_000
    assert quorum.step(TimerExpired(), due_ms - 1) == []
    assert quorum.deadline_ms() == due_ms
    assert quorum.step(TimerExpired(), due_ms) == []
    found_ms = quorum.deadline_ms()
    assert found_ms is not None and found_ms > due_ms
