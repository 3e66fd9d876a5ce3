"""What a member may claim of what it had, in the assignors that clients run. The rest is compared with Java's."""

from __future__ import annotations

import pytest

from ottla.client.assignment.assignor import ASSIGNORS, CandidateMember
from ottla.client.assignment.consumer_protocol import Subscription
from ottla.kernel.ids import TopicPartition

_P = [TopicPartition("t", number) for number in range(8)]
_STICKY = ["sticky", "cooperative-sticky"]


def _member(
    name: str, *owned: TopicPartition, generation: int = 3, topics: tuple[str, ...] = ("t",)
) -> CandidateMember:
    return CandidateMember(name, Subscription(topics, owned, generation))


def _assigned(assignor: str, counts: dict[str, int], *members: CandidateMember) -> dict[str, set[TopicPartition]]:
    found = ASSIGNORS[assignor](list(members), counts, {})
    given = [one for some in found.values() for one in some]
    assert len(given) == len(set(given)), "a partition has one owner"
    assert found.keys() == {each.id for each in members}
    return {name: set(some) for name, some in found.items()}


@pytest.mark.parametrize("assignor", ASSIGNORS)
@pytest.mark.parametrize("count", [3, 4])
def test_partitions_that_a_topic_made_again_has_no_more_are_nobodys(assignor: str, count: int) -> None:
    found = _assigned(assignor, {"t": count}, _member("a", *_P[2:6]), _member("b", _P[0], _P[1]))
    assert set().union(*found.values()) <= set(_P[:count])
    if assignor not in _STICKY:
        assert set().union(*found.values()) == set(_P[:count])
    elif count == 4:
        assert found == {"a": {_P[2], _P[3]}, "b": {_P[0], _P[1]}}


def test_the_claim_of_the_newer_generation_holds() -> None:
    for old, new in (("a", "b"), ("b", "a")):
        members = [_member(old, *_P[:2], generation=3), _member(new, *_P[:2], generation=4)]
        for order in (members, members[::-1]):
            found = _assigned("sticky", {"t": 4}, *order)
            assert found[new] == {_P[0], _P[1]}


@pytest.mark.parametrize("assignor", _STICKY)
def test_of_two_claims_of_one_generation_none_holds(assignor: str) -> None:
    both = [_member("a", _P[0], _P[1]), _member("b", _P[0], _P[2])]
    found = _assigned("sticky", {"t": 3}, *both)
    assert _P[1] in found["a"] and _P[2] in found["b"]
    assert set().union(*found.values()) == set(_P[:3])
    # An older claim than both does not come back.
    found = _assigned(assignor, {"t": 3}, *both, _member("c", _P[0], generation=1))
    assert _P[1] in found["a"] and _P[2] in found["b"]


@pytest.mark.parametrize("assignor", _STICKY)
def test_what_a_member_reads_no_more_is_not_kept(assignor: str) -> None:
    left, stays = _member("a", _P[0], topics=("u",)), _member("b", _P[1])
    found = _assigned(assignor, {"t": 2, "u": 1}, left, stays)
    assert found["a"] == {TopicPartition("u", 0)}
    # Whoever had it lets go first, where members cooperate.
    assert found["b"] == ({_P[0], _P[1]} if assignor == "sticky" else {_P[1]})


@pytest.mark.parametrize(
    ("generation", "cut", "kept"),
    [(3, None, True), (1, None, False), (3, -4, True), (3, -6, False), (3, 3, False)],
    ids=["told", "an older claim", "of the first version", "cut", "no list"],
)
def test_a_member_of_javas_sticky_keeps_what_its_user_data_tell(generation: int, cut: int | None, kept: bool) -> None:
    """Data of the first version have no generation: such a claim holds where there is no other."""
    partitions = b"\0\0\0\x01" + b"\0\x01t" + b"\0\0\0\x02" + b"\0\0\0\x02" + b"\0\0\0\x03"
    data = (partitions + generation.to_bytes(4, "big"))[:cut]
    java = CandidateMember("b", Subscription(("t",), (), -1, None, data))
    other = _member("a", *(() if cut else _P[2:4]), generation=2)
    found = _assigned("sticky", {"t": 4}, other, java)
    assert (found["b"] == {_P[2], _P[3]}) is kept


def test_members_that_cooperate_get_what_changes_hands_a_round_later() -> None:
    first = _assigned("cooperative-sticky", {"t": 4}, _member("a", *_P[:4]), _member("b", generation=-1))
    assert first == {"a": {_P[0], _P[1]}, "b": set()}
    kept = sorted(first["a"])
    second = _assigned("cooperative-sticky", {"t": 4}, _member("a", *kept), _member("b"))
    assert second == {"a": set(kept), "b": {_P[2], _P[3]}}


def test_a_stale_claim_takes_nothing_from_the_member_that_has_the_partition() -> None:
    fresh, stale = _member("a", *_P[:2], generation=4), _member("b", *_P[1:4], generation=3)
    for order in ([fresh, stale], [stale, fresh]):
        assert _assigned("cooperative-sticky", {"t": 4}, *order) == {"a": {_P[0], _P[1]}, "b": {_P[2], _P[3]}}


def test_a_partition_that_two_members_claim_goes_to_none_of_them_until_both_have_let_it_go() -> None:
    members = [_member("a", _P[0], _P[1]), _member("b", _P[1], _P[2])]
    for order in (members, members[::-1]):
        assert _assigned("cooperative-sticky", {"t": 3}, *order) == {"a": {_P[0]}, "b": {_P[2]}}


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_a_topic_that_is_not_there_is_passed_over(assignor: str) -> None:
    found = _assigned(assignor, {"t": 2}, _member("a", topics=("gone", "t")), _member("b", topics=("gone",)))
    assert found == {"a": {_P[0], _P[1]}, "b": set()}
