"""The votes of one election, or of its pre-vote."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.raft.role import Voter


class Votes:
    """The votes granted and rejected so far. A majority of all voters decides."""

    __slots__ = ("_answers", "_voters")

    def __init__(self, voters: Iterable[Voter], own_id: int) -> None:
        self._voters = {voter.node_id: voter for voter in voters}
        self._answers = {own_id: True} if own_id in self._voters else {}

    def note(self, node_id: int, *, granted: bool) -> None:
        """Record the answer of a voter; other nodes and repeated answers are ignored."""
        if node_id in self._voters:
            self._answers.setdefault(node_id, granted)

    @property
    def granted(self) -> frozenset[Voter]:
        return frozenset(self._voters[node_id] for node_id, granted in self._answers.items() if granted)

    @property
    def silent(self) -> list[Voter]:
        """The voters that have not answered."""
        return [voter for node_id, voter in self._voters.items() if node_id not in self._answers]

    @property
    def is_won(self) -> bool:
        return sum(self._answers.values()) >= self._majority

    @property
    def is_lost(self) -> bool:
        """True if the outstanding votes cannot make a majority any more."""
        return len(self._voters) - sum(not granted for granted in self._answers.values()) < self._majority

    @property
    def _majority(self) -> int:
        return len(self._voters) // 2 + 1
