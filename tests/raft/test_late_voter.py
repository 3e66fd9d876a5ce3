"""Voter changes that are stored when the node has no leader any more: when it stands for election, and when not."""

from __future__ import annotations

import random

from ottla.kernel.ids import Uuid
from ottla.raft.checkpoint import Membership, VoterEndpoint, VoterNode, membership_records
from ottla.raft.event import EntriesAppended, RequestReceived, Started, TimerExpired
from ottla.raft.quorum import Quorum, QuorumSettings
from ottla.raft.role import Election, Prospective, Unattached, Voter
from ottla.raft.voters import VoterHistory
from ottla.wire.record.control import VotersRecord, key_bytes, parse
from tests.raft.memory_log import MemoryLog
from tests.raft.outside import request_of

TIMEOUT_MS = 1000
WHERE = (VoterEndpoint("CONTROLLER", "leader", 9093),)
LEADER, OTHER, OWN = (Voter(number, Uuid(bytes([number] * 16))) for number in (1, 2, 3))


def voters(*members: Voter) -> VotersRecord:
    membership = Membership(1, tuple(VoterNode(each, WHERE, (0, 1)) for each in members))
    _, (kind, value) = membership_records(membership)
    found = parse(key_bytes(kind), value)[1]
    assert isinstance(found, VotersRecord)
    return found


class Node:
    """A node that has seen epoch 2 and does not know its leader."""

    def __init__(self, *members: Voter) -> None:
        self.now_ms, self.log = 5_000, MemoryLog()
        settings = QuorumSettings(cluster_id="c", endpoints=WHERE, election_timeout_ms=TIMEOUT_MS)
        history = VoterHistory(tuple(VoterNode(each, WHERE) for each in members))
        self.quorum = Quorum(OWN, history, Election(1), settings, self.log, random.Random(1))
        self.quorum.step(Started(0, 0, 0), self.now_ms)
        # A vote would start the election timer.
        request = request_of("vote", {"epoch": "2", "from": "1", "to": "9", "log": "9@1"})
        self.quorum.step(RequestReceived("ticket", "CONTROLLER", request, 2), self.now_ms)

    def store(self, *changes: VotersRecord) -> None:
        """The records that the last leader sent are in the log."""
        first = self.log.end_offset
        self.log.append(len(changes), 1)
        numbered = tuple(enumerate(changes, first))
        self.quorum.step(EntriesAppended(self.log.end_offset, 10, numbered), self.now_ms)

    def wait(self, wait_ms: int) -> bool:
        """Let time pass in steps; whether the node still stands back."""
        until_ms = self.now_ms + wait_ms
        while self.now_ms < until_ms:
            self.now_ms = min(until_ms, self.now_ms + 50)
            self.quorum.step(TimerExpired(), self.now_ms)
        return isinstance(self.quorum.role, Unattached)


def test_a_node_that_becomes_a_voter_without_a_leader_stands_after_a_timeout_of_its_own() -> None:
    node = Node(LEADER, OTHER)
    assert node.wait(5 * TIMEOUT_MS), "an observer never stands"
    node.store(voters(LEADER, OTHER, OWN))
    assert node.wait(TIMEOUT_MS - 1)
    assert not node.wait(TIMEOUT_MS)
    assert isinstance(node.quorum.role, Prospective)


def test_a_node_that_is_no_voter_any_more_does_not_stand() -> None:
    node = Node(LEADER, OTHER, OWN)
    assert isinstance(node.quorum.role, Unattached)
    # Only the newest change may be undone.
    node.store(voters(LEADER, OTHER), voters(LEADER))
    assert node.wait(5 * TIMEOUT_MS)
