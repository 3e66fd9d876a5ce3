"""Rack awareness of the assignors: which members are near which partitions (KIP-881).

Rules:
- Racks matter only if a member's `client.rack` is among the partitions' racks, and some partition is not in all racks;
  otherwise every choice is equally good.
- As in Java's client, a member without a rack is near every partition for `range`, and has no preference for `sticky`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ottla.kernel.ids import TopicPartition

#: The racks of each partition's replicas.
Racks = Mapping[TopicPartition, frozenset[str]]


def racks_count(of_members: Iterable[str | None], of_partitions: Sequence[frozenset[str]]) -> bool:
    """True if racks matter for the assignment."""
    everywhere = frozenset().union(*of_partitions)
    return not everywhere.isdisjoint(rack for rack in of_members if rack) and any(
        one != everywhere for one in of_partitions
    )


class Nearness:
    """The racks of a group's members and partitions, for one assignment. Empty if racks do not matter."""

    def __init__(
        self, of_members: Mapping[str, str | None], partitions: Iterable[TopicPartition], racks: Racks
    ) -> None:
        wanted = {one: racks.get(one, frozenset()) for one in partitions}
        there = racks_count(of_members.values(), list(wanted.values()))
        known = {member: rack for member, rack in of_members.items() if rack}
        self.of_members: Mapping[str, str] = known if there else {}
        self._racks = wanted if there else {}
        #: The number of members near each partition, counted even if racks do not matter.
        self._readers: dict[TopicPartition, int] = {}
        if known:
            counts: dict[str, int] = {}
            for rack in known.values():
                counts[rack] = counts.get(rack, 0) + 1
            self._readers = {one: sum(counts.get(rack, 0) for rack in where) for one, where in wanted.items()}

    def near(self, member: str, one: TopicPartition) -> bool:
        """True if the partition is near, or the member has no rack."""
        rack = self.of_members.get(member)
        return rack is None or rack in self._racks.get(one, ())

    def in_order(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The partitions, those with the fewest near members first."""
        return sorted(partitions, key=lambda one: self._readers.get(one, 0))

    def next_of(self, one: TopicPartition, members: Sequence[str], first: int) -> int | None:
        """The index in `members`, from `first` on and around, of one in a rack of this partition; None if none is."""
        where = self._racks.get(one)
        for step in range(len(members) if where else 0):
            place = (first + step) % len(members)
            if self.of_members.get(members[place]) in (where or ()):
                return place
        return None


class _Topic:
    """A topic during a range assignment."""

    def __init__(self, name: str, count: int, members: list[tuple[str, str | None]], racks: Racks) -> None:
        self.name = name
        self.members = dict(members)
        self.count = count
        self.free = dict.fromkeys(TopicPartition(name, number) for number in range(count))
        self._racks = {one: racks.get(one, frozenset()) for one in self.free}
        self._share, self._extra = divmod(count, len(members))
        self._has: dict[str, int] = {}
        self.racks_count = racks_count(self.members.values(), list(self._racks.values()))

    def near(self, member: str, one: TopicPartition) -> bool:
        rack = self.members[member]
        return not rack or rack in self._racks.get(one, ())

    def room(self, member: str) -> int:
        """The number of partitions that the member may still get."""
        return max(0, self._share + (self._extra > 0) - self._has.get(member, 0))

    def give(self, member: str, some: list[TopicPartition], found: dict[str, list[TopicPartition]]) -> None:
        self._has[member] = self._has.get(member, 0) + len(some)
        if self._has[member] > self._share:
            self._extra -= 1
        for one in some:
            del self.free[one]
        found[member] += some

    def deal(self, found: dict[str, list[TopicPartition]], may: Callable[[str, TopicPartition], bool]) -> None:
        """Give each member the free partitions that `may` allows, as many as it has room for."""
        for member in self.members:
            some = [one for one in self.free if may(member, one)][: self.room(member)]
            if some:
                self.give(member, some, found)


def range_by_rack(
    topics: Mapping[str, int], readers: Mapping[str, list[tuple[str, str | None]]], racks: Racks
) -> dict[str, list[TopicPartition]]:
    """Assign by range, near partitions first. `readers` has the (member, rack) of each topic, in order.

    Topics with the same members and the same number of partitions stay together: one member gets partition 1 of all.
    """
    found: dict[str, list[TopicPartition]] = {member: [] for some in readers.values() for member, _ in some}
    states = [_Topic(name, topics[name], readers[name], racks) for name in readers]
    if any(state.racks_count for state in states):
        together: dict[tuple[tuple[tuple[str, str | None], ...], int], list[_Topic]] = {}
        for state in states:
            together.setdefault((tuple(state.members.items()), state.count), []).append(state)
        for group in together.values():
            if len(group) > 1:
                _deal_together(group, found)
            elif group[0].racks_count:
                group[0].deal(found, group[0].near)
    for state in states:
        state.deal(found, lambda member, one: True)
    return found


def _deal_together(group: list[_Topic], found: dict[str, list[TopicPartition]]) -> None:
    left = list(group[0].members)
    for number in range(group[0].count):
        taker = next((member for member in left if all(_may(topic, member, number) for topic in group)), None)
        if taker is None:
            continue
        for topic in group:
            topic.give(taker, [TopicPartition(topic.name, number)], found)
        if not any(topic.room(taker) for topic in group):
            left.remove(taker)


def _may(topic: _Topic, member: str, number: int) -> bool:
    return topic.near(member, TopicPartition(topic.name, number)) and topic.room(member) > 0
