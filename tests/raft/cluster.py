"""Several machines with logs, disks and a network of their own, all in memory: what a driver does, without a driver.

Rules:
- A node's disk is `Disk`: what is in it survives a crash, the log up to `synced`.
- Effects are carried out in order, before the next event. Syncs and messages are the caller's to let happen.
- `Cluster.check` asserts what must hold of all nodes at all times.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from ottla.kernel.error import ErrorCode
from ottla.kernel.ports import Rng
from ottla.raft.checkpoint import Membership, SnapshotId, VoterNode
from ottla.raft.connections import QuorumPeer
from ottla.raft.effect import (
    Answer,
    AnswerFetch,
    AnswerSnapshot,
    AppendControl,
    AppendEntries,
    AppendNoOp,
    AppendReplicated,
    CleanLog,
    Commit,
    Effect,
    InstallSnapshot,
    LeaderChanged,
    SaveElection,
    Send,
    Sync,
    TruncateLog,
    Warn,
    WriteSnapshot,
    WriteSnapshotPiece,
)
from ottla.raft.event import (
    AppendFailed,
    EntriesAppended,
    Event,
    LogTruncated,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    SnapshotInstalled,
    SnapshotWritten,
    Started,
    Synced,
    TimerExpired,
)
from ottla.raft.quorum import Quorum, QuorumSettings
from ottla.raft.role import Candidate, Leader, Voter
from ottla.raft.voters import VoterHistory
from ottla.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse, SupportedFeatureKey
from ottla.wire.api.vote import VoteRequest, VoteResponse
from ottla.wire.record.control import KRaftVersionRecord, VotersRecord, key_bytes, parse
from tests.raft.node_disk import LISTENER, Disk, EntryLog, directory_of, endpoint_of


class Message(NamedTuple):
    """A request or its response, under way."""

    source: int
    target: int
    #: The node's life that sent the request: a response for an earlier one reaches nobody.
    life: int
    ticket: int
    request: Any
    response: Any = None


class Node:
    """One machine, its driver and its disk. Off until `start`."""

    def __init__(self, node_id: int, cluster: Cluster, settings: QuorumSettings, fixed: tuple[VoterNode, ...]) -> None:
        self.node_id = node_id
        self.disk = Disk(directory_of(node_id, 0))
        self.life = self.disks = 0
        self.quorum: Quorum | None = None
        self.committed = 0
        #: What is committed here: the values, in their order.
        self.values: list[Any] = []
        self.wants_sync = False
        #: The end of the log when the sync that is under way began.
        self.syncing: int | None = None
        #: The node crashes before it carries out one more effect than this; negative: it does not.
        self.effects_left = -1
        self._cluster = cluster
        self._settings = settings
        self._fixed = fixed
        self._parts: dict[SnapshotId, bytearray] = {}
        #: The requests of other nodes, by the ticket that the machine knows them by.
        self._asked: dict[Any, Message] = {}

    @property
    def key(self) -> Voter:
        return Voter(self.node_id, self.disk.directory)

    @property
    def is_up(self) -> bool:
        return self.quorum is not None

    @property
    def log(self) -> EntryLog:
        return self.disk.log

    # ---- life

    def start(self) -> None:
        self.life += 1
        history = VoterHistory(self._fixed)
        log, end_offset = self.log, 0
        if log.snapshots:
            end_offset = log.snapshots[-1].end_offset
            values, membership = self.disk.contents[log.snapshots[-1]]
            self.values = list(values)
            history.restart(end_offset, membership)
        else:
            self.values = []
        self.committed = end_offset
        for offset, entry in log.entries.items():
            if offset >= end_offset:
                history.change(offset, entry.value)
        self.wants_sync = False
        self._parts = {}
        self.quorum = Quorum(
            self.key, history, self.disk.election, self._settings, log, self._cluster.rng_of(self.node_id, self.life)
        )
        self.step(Started(log.end_offset, end_offset, 10 * (log.end_offset - end_offset)))

    def crash(self, keep: int | None = None) -> None:
        """Stop at once; of what was not synced the log keeps up to `keep`."""
        self.quorum = None
        self.effects_left = -1
        self.syncing = None
        end = max(self.disk.synced, min(keep, self.log.end_offset) if keep is not None else 0)
        # A batch is there whole or not at all.
        while end in self.log.entries and self.log.entries[end].base != end:
            end = self.log.entries[end].base
        self.log.truncate(end)
        self.disk.synced = min(self.disk.synced, end)

    def wipe(self) -> None:
        """A new, empty disk."""
        assert self.quorum is None
        self.disks += 1
        self.disk = Disk(directory_of(self.node_id, self.disks))

    def sync(self) -> None:
        """The sync that was wanted is done, for all that is in the log now."""
        self.begin_sync()
        self.end_sync()

    def begin_sync(self) -> None:
        """A sync of what is in the log now; what is appended meanwhile waits for the next one."""
        self.wants_sync = False
        self.syncing = self.log.end_offset

    def end_sync(self) -> None:
        assert self.syncing is not None
        end_offset, self.syncing = self.syncing, None
        self.disk.synced = max(self.disk.synced, end_offset)
        self.step(Synced(end_offset))

    def _cut(self) -> None:
        """The log has become another: a sync that is under way tells nothing of it."""
        if self.syncing is not None:
            self.syncing, self.wants_sync = None, True

    def step(self, event: Event) -> None:
        if self.quorum is None:
            return
        effects = self.quorum.step(event, self._cluster.now_ms)
        self._cluster.saw(self, event, effects)
        for effect in effects:
            if self.is_up and self.effects_left == 0:
                self.crash()
            if self.is_up:
                self.effects_left -= 1
                self._carry_out(effect)
        if self.is_up:
            self.quorum.validate()

    # ---- effects

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case SaveElection():
                self.disk.election = effect.election
                if effect.election.leader_id == self.node_id:
                    self._cluster.led(self)
            case AppendControl() if self.disk.is_full:
                self.step(AppendFailed())
            case AppendControl():
                self._append(effect.epoch, [parse(key_bytes(kind), value)[1] for kind, value in effect.records])
            case AppendEntries():
                self._append(effect.epoch, list(effect.records))
            case AppendNoOp():
                self._append(effect.epoch, ["-"])
            case AppendReplicated():
                self._append_replicated(effect)
            case TruncateLog():
                self._cluster.truncates(self, effect.end_offset)
                self.log.truncate(effect.end_offset)
                self.disk.synced = min(self.disk.synced, effect.end_offset)
                self._cut()
                self.step(LogTruncated(effect.end_offset))
            case Sync():
                self.wants_sync = True
            case Commit():
                self._commit(effect.high_watermark)
            case WriteSnapshot():
                self._write_snapshot(effect.end_offset)
            case WriteSnapshotPiece():
                if effect.position == 0:
                    self._parts[effect.snapshot] = bytearray()
                assert len(self._parts[effect.snapshot]) == effect.position
                self._parts[effect.snapshot] += effect.data
            case InstallSnapshot():
                self._install(effect.snapshot)
            case Send() | Answer() | AnswerFetch() | AnswerSnapshot():
                self._transmit(effect)
            case CleanLog():
                self.log.begin_at(self.log.snapshots[-1])
                self.disk.synced = max(self.disk.synced, self.log.start_offset)
            case LeaderChanged() | Warn():
                pass

    def _append(self, epoch: int, values: list[Any]) -> None:
        base = self.log.add(epoch, values)
        self._appended(base, values)

    def _append_replicated(self, effect: AppendReplicated) -> None:
        base, values = self.log.end_offset, []
        for batch in effect.batches:
            if batch[0].epoch > effect.epoch or batch[0].base != self.log.end_offset:
                break
            self.log.add(batch[0].epoch, [entry.value for entry in batch])
            values += [entry.value for entry in batch]
        if values:
            self._appended(base, values)
        else:
            self.step(AppendFailed())

    def _appended(self, base: int, values: list[Any]) -> None:
        changes = tuple(
            (offset, value)
            for offset, value in enumerate(values, base)
            if isinstance(value, KRaftVersionRecord | VotersRecord)
        )
        self.step(EntriesAppended(self.log.end_offset, 10 * len(values), changes))

    def _commit(self, high_watermark: int) -> None:
        self._cluster.commits(self, high_watermark)
        for offset in range(self.committed, high_watermark):
            value = self.log.entries[offset].value
            if isinstance(value, str):
                self.values.append(value)
        self.committed = high_watermark

    def write_snapshot(self) -> None:
        """A snapshot of all that is committed here, though none is due."""
        self._write_snapshot(self.committed)

    def _write_snapshot(self, end_offset: int) -> None:
        assert self.quorum is not None
        snapshot = SnapshotId(end_offset, self.log.entries[end_offset - 1].epoch)
        self.disk.contents[snapshot] = (tuple(self.values), self.quorum.membership_at(end_offset))
        self.log.snapshot(snapshot, len(self._snapshot_bytes(snapshot)))
        self.step(SnapshotWritten(end_offset))

    def _snapshot_bytes(self, snapshot: SnapshotId) -> bytes:
        return pickle.dumps(self.disk.contents[snapshot])

    def _install(self, snapshot: SnapshotId) -> None:
        values, membership = self.disk.contents[snapshot] = pickle.loads(self._parts.pop(snapshot))
        self.values = list(values)
        self._cluster.installs(self, snapshot)
        self.committed = snapshot.end_offset
        self.log.restart(snapshot)
        self.log.sizes[snapshot] = len(self._snapshot_bytes(snapshot))
        self.disk.synced = snapshot.end_offset
        self._cut()
        self.step(SnapshotInstalled(snapshot, membership))

    def _transmit(self, effect: Send | Answer | AnswerFetch | AnswerSnapshot) -> None:
        if isinstance(effect, Send):
            target = self._cluster.at(effect.peer)
            self._cluster.post(Message(self.node_id, target, self.life, effect.ticket, effect.request))
            return
        response: Any = effect.response
        if isinstance(effect, AnswerFetch):
            count = self._cluster.batches_max
            response.responses[0].partitions[0].records = self.log.batches(effect.offset, count)
        if isinstance(effect, AnswerSnapshot):
            data = self._snapshot_bytes(effect.snapshot)[effect.position :][: effect.max_bytes]
            response.topics[0].partitions[0].unaligned_records = data
        asked = self._asked.get(effect.ticket)
        if asked is not None:
            assert type(response).__module__ == type(asked.request).__module__, "the answer to another API"
            if isinstance(response, VoteResponse) and response.topics:
                self._cluster.votes(self, asked.request, response)
            self._cluster.post(asked._replace(response=response))
        else:
            self._cluster.answered(self, effect.ticket, response)

    def receive(self, message: Message) -> None:
        """A request has come."""
        if isinstance(message.request, ApiVersionsRequest):
            # A node refuses one without a name or a version (KIP-511).
            assert message.request.client_software_name, message.request
            assert message.request.client_software_version, message.request
            feature = SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
            self._cluster.post(message._replace(response=ApiVersionsResponse(supported_features=[feature])))
            return
        self._asked[len(self._asked)] = message
        self.step(RequestReceived(len(self._asked) - 1, LISTENER, message.request, 18))


class Broken(AssertionError):
    """Something that must hold of all nodes does not."""


class Cluster:
    """The nodes, the messages between them, and what they have promised."""

    def __init__(
        self,
        voters: list[int],
        observers: list[int],
        *,
        kraft_version: int = 1,
        settings: QuorumSettings | None = None,
        asks_itself: bool = True,
        rng_of: Callable[[int, int], Rng] = lambda node_id, life: random.Random(f"{node_id} {life}"),
    ) -> None:
        self.now_ms = 0
        self.rng_of = rng_of
        self.batches_max = 4
        self.messages: list[Message] = []
        #: Told of each step: (node, event, effects).
        self.on_step: Callable[[Node, Event, list[Effect]], None] = lambda *_: None
        self.on_answer: Callable[[Node, Any, Any], None] = lambda *_: None
        self._leaders: dict[int, tuple[int, int]] = {}
        #: Offset -> (epoch, value) of what some node has committed.
        self.history: list[tuple[int, Any]] = []
        self._votes: dict[tuple[int, Voter], Voter] = {}
        everyone = [*voters, *observers]
        peers = tuple(
            QuorumPeer(-2 - at, f"n{node_id}", 9093)
            for at, node_id in enumerate(each for each in everyone if each < 10)
        )
        nodes = tuple(
            VoterNode(
                Voter(node_id, directory_of(node_id, 0)) if kraft_version else Voter(node_id), (endpoint_of(node_id),)
            )
            for node_id in voters
        )
        self.nodes: dict[int, Node] = {}
        base = settings or QuorumSettings()
        for node_id in everyone:
            own = replace(
                base,
                cluster_id="c",
                endpoints=(endpoint_of(node_id),),
                # The settings of all nodes name the same servers; a node may be among its own.
                bootstrap=tuple(peer for peer in peers if asks_itself or self.at(peer) != node_id),
                can_vote=node_id < 10,
            )
            node = Node(node_id, self, own, () if kraft_version else nodes)
            if kraft_version and node_id in voters:
                bootstrap = SnapshotId(0, 0)
                node.disk.contents[bootstrap] = ((), Membership(1, nodes))
                node.log.snapshot(bootstrap)
            self.nodes[node_id] = node

    def at(self, peer: QuorumPeer) -> int:
        return int(peer.host[1:])

    def post(self, message: Message) -> None:
        self.messages.append(message)

    def up(self) -> Iterator[Node]:
        return (node for node in self.nodes.values() if node.quorum is not None)

    def leader(self) -> Node | None:
        """The node that leads the newest epoch."""
        leading = [node for node in self.up() if node.quorum is not None and node.quorum.leads]
        return max(leading, key=lambda node: node.quorum.epoch if node.quorum else -1, default=None)

    def deliver(self, message: Message) -> None:
        """Bring a message to its node, if that is up and the one who waits for it still lives."""
        if message.response is None:
            target = self.nodes.get(message.target)
            if target is not None and target.quorum is not None:
                target.receive(message)
            return
        source = self.nodes[message.source]
        if source.quorum is not None and source.life == message.life:
            source.step(ResponseReceived(message.ticket, message.response))

    def fail(
        self, message: Message, error: ErrorCode = ErrorCode.BROKER_NOT_AVAILABLE, *, is_refused: bool = False
    ) -> None:
        """The one who sent the request learns that there is no answer."""
        source = self.nodes[message.source]
        if source.quorum is not None and source.life == message.life:
            source.step(RequestFailed(message.ticket, error, is_refused))

    def pass_time(self, ms: int) -> None:
        """Let time go by for all nodes."""
        self.now_ms += ms
        for node in list(self.up()):
            deadline_ms = None if node.quorum is None else node.quorum.deadline_ms()
            if deadline_ms is not None and deadline_ms <= self.now_ms:
                node.step(TimerExpired())

    # ---- what must hold

    def saw(self, node: Node, event: Event, effects: list[Effect]) -> None:
        self.on_step(node, event, effects)

    def answered(self, node: Node, ticket: Any, response: Any) -> None:
        self.on_answer(node, ticket, response)

    def led(self, node: Node) -> None:
        """One leader an epoch, in one life of it; and it has everything that is committed."""
        epoch = node.disk.election.epoch
        if epoch in self._leaders:
            raise Broken(f"epoch {epoch} is led by {node.node_id}, and was by {self._leaders[epoch]}")
        self._leaders[epoch] = (node.node_id, node.life)
        if node.log.end_offset < len(self.history):
            raise Broken(f"{node.node_id} leads {epoch} and ends at {node.log.end_offset} of {len(self.history)}")
        self._compare(node, len(self.history))

    def commits(self, node: Node, high_watermark: int) -> None:
        if high_watermark <= node.committed:
            raise Broken(f"{node.node_id} went back from {node.committed} to {high_watermark}")
        self._compare(node, min(high_watermark, len(self.history)))
        for offset in range(len(self.history), high_watermark):
            entry = node.log.entries[offset]
            self.history.append((entry.epoch, entry.value))

    def _compare(self, node: Node, end_offset: int) -> None:
        for offset in range(max(node.log.start_offset, node.committed), end_offset):
            entry = node.log.entries[offset]
            if (entry.epoch, entry.value) != self.history[offset]:
                raise Broken(f"{node.node_id} has {entry} at {offset}, and committed is {self.history[offset]}")

    def truncates(self, node: Node, end_offset: int) -> None:
        if end_offset < node.committed:
            raise Broken(f"{node.node_id} truncates to {end_offset}, and {node.committed} is committed")

    def installs(self, node: Node, snapshot: SnapshotId) -> None:
        """A snapshot is what is committed below its end."""
        if snapshot.end_offset < node.committed or snapshot.end_offset > len(self.history):
            raise Broken(f"{node.node_id} installs {snapshot} over {node.committed} of {len(self.history)}")
        if self.history[snapshot.end_offset - 1][0] != snapshot.epoch:
            raise Broken(f"{snapshot} is of another epoch than {self.history[snapshot.end_offset - 1]}")
        expected = [value for _, value in self.history[: snapshot.end_offset] if isinstance(value, str)]
        if node.values != expected:
            raise Broken(f"{snapshot} holds {node.values}, and committed is {expected}")

    def votes(self, node: Node, request: VoteRequest, response: VoteResponse) -> None:
        """A vote is durable before it is told, and there is one an epoch."""
        asked, said = request.topics[0].partitions[0], response.topics[0].partitions[0]
        if asked.pre_vote or not said.vote_granted:
            return
        candidate = Voter(asked.replica_id, asked.replica_directory_id)
        saved = node.disk.election
        if saved.epoch != asked.replica_epoch or saved.voted is None or not saved.voted.matches(candidate):
            raise Broken(f"{node.node_id} votes for {candidate}, and has saved {saved}")
        self._vote(asked.replica_epoch, node.key, candidate)

    def _vote(self, epoch: int, voter: Voter, candidate: Voter) -> None:
        if self._votes.setdefault((epoch, voter), candidate) != candidate:
            raise Broken(f"{voter} votes in {epoch} for {candidate} and for {self._votes[epoch, voter]}")

    def check(self) -> None:
        """Own votes, and the logs that must match."""
        for node in self.up():
            assert node.quorum is not None
            if isinstance(node.quorum.role, Candidate | Leader):
                self._vote(node.quorum.epoch, node.key, node.key)
        logs = [node.log for node in self.nodes.values()]
        for one, other in pairwise(logs):
            same = False
            for offset in range(min(one.end_offset, other.end_offset) - 1, -1, -1):
                if offset not in one.entries or offset not in other.entries:
                    break
                mine, its = one.entries[offset], other.entries[offset]
                if same and mine != its:
                    raise Broken(f"logs part at {offset} and meet again: {mine} and {its}")
                same = same or mine.epoch == its.epoch
