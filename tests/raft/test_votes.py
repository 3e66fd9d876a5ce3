"""Votes are counted by the majority of all voters."""

import pytest

from ottla.kernel.ids import Uuid
from ottla.raft.role import Voter
from ottla.raft.votes import Votes


def _voters(count: int) -> list[Voter]:
    return [Voter(number, Uuid(bytes([number]) * 16)) for number in range(1, count + 1)]


@pytest.mark.parametrize(
    ("count", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4), (8, 5), (9, 5)]
)
def test_more_than_half_of_all_voters_decide(count: int, majority: int) -> None:
    for yes in range(1, count + 1):
        for no in range(count - yes + 1):
            votes = Votes(_voters(count), own_id=1)
            for number in range(2, yes + 1):
                votes.note(number, granted=True)
            for number in range(yes + 1, yes + no + 1):
                votes.note(number, granted=False)
            assert votes.is_won == (yes >= majority), (yes, no)
            assert votes.is_lost == (count - no < majority), (yes, no)
            assert len(votes.granted) == yes
            assert len(votes.silent) == count - yes - no


def test_one_voter_has_one_vote_and_others_have_none() -> None:
    votes = Votes(_voters(3), own_id=1)

    def decided() -> tuple[bool, bool]:
        return votes.is_won, votes.is_lost

    votes.note(9, granted=True)
    votes.note(1, granted=False)
    assert decided() == (False, False)
    votes.note(2, granted=False)
    votes.note(2, granted=True)
    assert decided() == (False, False)
    votes.note(3, granted=False)
    assert decided() == (False, True)
    # A node that is no voter counts itself neither for nor against.
    assert Votes(_voters(1), own_id=9).granted == frozenset()
