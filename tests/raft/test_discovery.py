"""What a node learns of the epoch and its leader from any message: a table of what it knows and what it is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.kernel.error import ErrorCode
from ottla.raft.checkpoint import Membership, VoterEndpoint, VoterNode
from ottla.raft.discovery import check_leader_request, is_plausible, learn, take_common, with_known_endpoints
from ottla.raft.message import LeaderSeen
from ottla.raft.role import EPOCH_MAX, NO_NODE, Follower, Leader, Voter

NONE = ErrorCode.NONE
_ME = 1
_AT = tuple(VoterEndpoint("CONTROLLER", f"host{number}", 9093) for number in range(4))
_NOWHERE: tuple[VoterEndpoint, ...] = ()


class _Member:
    """Node 1 in epoch 5, of voters 1 to 3, of which only 2 has an address in the log."""

    def __init__(
        self, leader: int = NO_NODE, endpoints: tuple[VoterEndpoint, ...] = _NOWHERE, kind: Any = None
    ) -> None:
        self.me = Voter(_ME)
        self.epoch = 5
        self.role: Any = SimpleNamespace(epoch=5, leader_id=leader, leader_endpoints=endpoints)
        if kind is not None:
            self.role = type(kind.__name__, (kind,), {"__init__": lambda role: None, "__slots__": ()})()
            for name, value in (("epoch", 5), ("leader_id", leader), ("leader_endpoints", endpoints)):
                object.__setattr__(self.role, name, value)
        nodes = (VoterNode(Voter(1), ()), VoterNode(Voter(2), (_AT[2],)), VoterNode(Voter(3), ()))
        self.voters = SimpleNamespace(last=Membership(1, nodes))
        self.told: list[Any] = []

    def warn(self, text: str) -> None:
        self.told.append("warn")

    def become_follower(self, epoch: int, leader: int, endpoints: Any) -> None:
        self.told.append((epoch, leader, endpoints))

    def become_unattached(self, epoch: int) -> None:
        self.told.append(epoch)


@pytest.mark.parametrize(
    ("seen", "endpoints"),
    [
        (LeaderSeen(5, 2, _NOWHERE), (_AT[2],)),
        (LeaderSeen(5, 2, (_AT[0],)), (_AT[0],)),
        (LeaderSeen(5, 3, _NOWHERE), _NOWHERE),
        (LeaderSeen(5, 9, _NOWHERE), _NOWHERE),
        (LeaderSeen(5, NO_NODE, _NOWHERE), _NOWHERE),
    ],
)
def test_a_leader_without_an_address_is_looked_up_among_the_voters(seen: LeaderSeen, endpoints: Any) -> None:
    found = with_known_endpoints(_Member(), seen)  # type: ignore[arg-type]
    assert found == LeaderSeen(seen.epoch, seen.leader_id, endpoints)


@pytest.mark.parametrize(
    ("member", "seen", "told"),
    [
        # A later epoch is adopted; its leader is followed if its address is known.
        (_Member(), LeaderSeen(6, 2, _NOWHERE), [(6, 2, (_AT[2],))]),
        (_Member(3, (_AT[3],)), LeaderSeen(6, 2, (_AT[0],)), [(6, 2, (_AT[0],))]),
        (_Member(), LeaderSeen(6, 3, _NOWHERE), [6]),
        (_Member(), LeaderSeen(6, NO_NODE, _NOWHERE), [6]),
        # An earlier one changes nothing.
        (_Member(), LeaderSeen(4, 2, (_AT[2],)), []),
        # In this epoch its leader becomes known, or more of its addresses.
        (_Member(), LeaderSeen(5, 2, _NOWHERE), [(5, 2, (_AT[2],))]),
        (_Member(), LeaderSeen(5, 3, _NOWHERE), []),
        (_Member(2, (_AT[2],)), LeaderSeen(5, 2, (_AT[0],)), []),
        (_Member(2, (_AT[2],)), LeaderSeen(5, 2, (_AT[0], _AT[1])), [(5, 2, (_AT[0], _AT[1]))]),
        (_Member(2, (_AT[2],)), LeaderSeen(5, NO_NODE, _NOWHERE), []),
        # Two leaders of one epoch, or this node as a leader that it is not.
        (_Member(2, (_AT[2],)), LeaderSeen(5, 3, (_AT[3], _AT[0])), ["warn"]),
        (_Member(2, (_AT[2],)), LeaderSeen(5, _ME, (_AT[1],)), ["warn"]),
        (_Member(), LeaderSeen(6, _ME, (_AT[1],)), ["warn"]),
        (_Member(_ME, (_AT[1],)), LeaderSeen(5, _ME, (_AT[1], _AT[2])), []),
    ],
)
def test_the_newest_epoch_and_its_one_leader_are_learned(member: _Member, seen: LeaderSeen, told: list[Any]) -> None:
    member.told.clear()
    assert learn(member, seen) is (told not in ([], ["warn"]))  # type: ignore[arg-type]
    assert member.told == told


def test_a_message_that_uses_up_the_epochs_is_of_a_broken_node() -> None:
    member: Any = _Member()
    most = 5 + (EPOCH_MAX - 5) // 2
    assert is_plausible(member, most) and is_plausible(member, 0) and member.told == []
    assert not is_plausible(member, most + 1) and member.told == ["warn"]
    assert take_common(member, NONE, LeaderSeen(most + 1, 2, (_AT[2],))) is False
    assert member.told == ["warn"] * 2


@pytest.mark.parametrize(
    ("kind", "leader", "error", "seen", "taken", "told"),
    [
        # What the other node knows is older, or it cannot know ours.
        (Follower, 2, NONE, LeaderSeen(4, 2, (_AT[2],)), False, []),
        (Follower, 2, ErrorCode.UNKNOWN_LEADER_EPOCH, LeaderSeen(5, 2, (_AT[2],)), False, []),
        (Follower, 2, NONE, LeaderSeen(6, 3, (_AT[3],)), True, [(6, 3, (_AT[3],))]),
        (Follower, 2, ErrorCode.FENCED_LEADER_EPOCH, LeaderSeen(6, 3, (_AT[3],)), True, [(6, 3, (_AT[3],))]),
        (Follower, 2, ErrorCode.NOT_LEADER_OR_FOLLOWER, LeaderSeen(5, NO_NODE, _NOWHERE), False, []),
        # From its leader a follower takes the content, and so does a leader from its followers.
        (Follower, 2, NONE, LeaderSeen(5, 2, (_AT[2],)), None, []),
        (Leader, _ME, NONE, LeaderSeen(5, _ME, (_AT[1],)), None, []),
        (Follower, 2, ErrorCode.BROKER_NOT_AVAILABLE, LeaderSeen(5, 2, (_AT[2],)), False, []),
        (Follower, 2, ErrorCode.INVALID_VOTER_KEY, LeaderSeen(5, 2, (_AT[2],)), False, []),
        (Follower, 2, ErrorCode.INVALID_REQUEST, LeaderSeen(5, 2, (_AT[2],)), False, []),
        (Follower, 2, ErrorCode.OFFSET_OUT_OF_RANGE, LeaderSeen(5, 2, (_AT[2],)), None, []),
        # A node that looks for the leader finds it, and takes the content of the same response.
        (None, NO_NODE, NONE, LeaderSeen(5, 2, (_AT[2],)), None, [(5, 2, (_AT[2],))]),
        (None, NO_NODE, ErrorCode.BROKER_NOT_AVAILABLE, LeaderSeen(5, 2, (_AT[2],)), True, [(5, 2, (_AT[2],))]),
        (None, NO_NODE, ErrorCode.BROKER_NOT_AVAILABLE, LeaderSeen(5, NO_NODE, _NOWHERE), False, []),
        (None, NO_NODE, NONE, LeaderSeen(5, NO_NODE, _NOWHERE), None, []),
    ],
)
def test_every_response_tells_of_the_leader(
    kind: Any, leader: int, error: ErrorCode, seen: LeaderSeen, taken: bool | None, told: list[Any]
) -> None:
    member: Any = _Member(leader, (_AT[leader],) if leader != NO_NODE else _NOWHERE, kind)
    assert take_common(member, error, seen) is taken
    assert member.told == told


@pytest.mark.parametrize(
    ("kind", "epoch", "error"),
    [
        (Leader, 4, ErrorCode.FENCED_LEADER_EPOCH),
        (Leader, 6, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (Leader, 5, NONE),
        (Follower, 5, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (None, 5, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_only_the_leader_of_the_epoch_answers_for_it(kind: Any, epoch: int, error: ErrorCode) -> None:
    member: Any = _Member(_ME, (_AT[1],), kind)
    assert check_leader_request(member, epoch) is error
