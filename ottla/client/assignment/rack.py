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


def racks_matter(rack_of_member: Iterable[str | None], racks_of_partitions: Sequence[frozenset[str]]) -> bool:
    """True if racks matter for the assignment."""
    everywhere = frozenset().union(*racks_of_partitions)
    return not everywhere.isdisjoint(rack for rack in rack_of_member if rack) and any(
        racks != everywhere for racks in racks_of_partitions
    )


class Nearness:
    """The racks of a group's members and partitions, for one assignment. Empty if racks do not matter."""

    def __init__(
        self, rack_of_member: Mapping[str, str | None], partitions: Iterable[TopicPartition], racks: Racks
    ) -> None:
        wanted = {partition: racks.get(partition, frozenset()) for partition in partitions}
        matters = racks_matter(rack_of_member.values(), list(wanted.values()))
        known = {member: rack for member, rack in rack_of_member.items() if rack}
        self.rack_of_member: Mapping[str, str] = known if matters else {}
        self._racks = wanted if matters else {}
        #: The number of members near each partition, counted even if racks do not matter.
        self._readers: dict[TopicPartition, int] = {}
        if known:
            counts: dict[str, int] = {}
            for rack in known.values():
                counts[rack] = counts.get(rack, 0) + 1
            self._readers = {
                partition: sum(counts.get(rack, 0) for rack in racks_of) for partition, racks_of in wanted.items()
            }

    def near(self, member: str, partition: TopicPartition) -> bool:
        """True if the partition is near, or the member has no rack."""
        rack = self.rack_of_member.get(member)
        return rack is None or rack in self._racks.get(partition, ())

    def in_order(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The partitions, those with the fewest near members first."""
        return sorted(partitions, key=lambda partition: self._readers.get(partition, 0))

    def next_of(self, partition: TopicPartition, members: Sequence[str], first: int) -> int | None:
        """The index in `members`, from `first` on and around, of one in a rack of this partition; None if none is."""
        partition_racks = self._racks.get(partition)
        for step in range(len(members) if partition_racks else 0):
            index = (first + step) % len(members)
            if self.rack_of_member.get(members[index]) in (partition_racks or ()):
                return index
        return None


class _Topic:
    """A topic during a range assignment."""

    def __init__(self, name: str, count: int, members: list[tuple[str, str | None]], racks: Racks) -> None:
        self.name = name
        self.members = dict(members)
        self.count = count
        self.free = dict.fromkeys(TopicPartition(name, number) for number in range(count))
        self._racks = {partition: racks.get(partition, frozenset()) for partition in self.free}
        self._share, self._extra = divmod(count, len(members))
        self._has: dict[str, int] = {}
        self.racks_matter = racks_matter(self.members.values(), list(self._racks.values()))

    def near(self, member: str, partition: TopicPartition) -> bool:
        rack = self.members[member]
        return not rack or rack in self._racks.get(partition, ())

    def room(self, member: str) -> int:
        """The number of partitions that the member may still get."""
        return max(0, self._share + (self._extra > 0) - self._has.get(member, 0))

    def give(self, member: str, given: list[TopicPartition], assignment: dict[str, list[TopicPartition]]) -> None:
        self._has[member] = self._has.get(member, 0) + len(given)
        if self._has[member] > self._share:
            self._extra -= 1
        for partition in given:
            del self.free[partition]
        assignment[member] += given

    def deal(self, assignment: dict[str, list[TopicPartition]], may: Callable[[str, TopicPartition], bool]) -> None:
        """Give each member the free partitions that `may` allows, as many as it has room for."""
        for member in self.members:
            given = [partition for partition in self.free if may(member, partition)][: self.room(member)]
            if given:
                self.give(member, given, assignment)


def range_by_rack(
    topics: Mapping[str, int], readers: Mapping[str, list[tuple[str, str | None]]], racks: Racks
) -> dict[str, list[TopicPartition]]:
    """Assign by range, near partitions first. `readers` has the (member, rack) of each topic, in order.

    Topics with the same members and the same number of partitions stay together: one member gets partition 1 of all.
    """
    assignment: dict[str, list[TopicPartition]] = {
        member: [] for topic_readers in readers.values() for member, _ in topic_readers
    }
    states = [_Topic(name, topics[name], readers[name], racks) for name in readers]
    if any(state.racks_matter for state in states):
        together: dict[tuple[tuple[tuple[str, str | None], ...], int], list[_Topic]] = {}
        for state in states:
            together.setdefault((tuple(state.members.items()), state.count), []).append(state)
        for group in together.values():
            if len(group) > 1:
                _deal_together(group, assignment)
            elif group[0].racks_matter:
                group[0].deal(assignment, group[0].near)
    for state in states:
        state.deal(assignment, lambda member, partition: True)
    return assignment


def _deal_together(group: list[_Topic], assignment: dict[str, list[TopicPartition]]) -> None:
    left = list(group[0].members)
    for number in range(group[0].count):
        taker = next((member for member in left if all(_may(topic, member, number) for topic in group)), None)
        if taker is None:
            continue
        for topic in group:
            topic.give(taker, [TopicPartition(topic.name, number)], assignment)
        if not any(topic.room(taker) for topic in group):
            left.remove(taker)


def _may(topic: _Topic, member: str, number: int) -> bool:
    return topic.near(member, TopicPartition(topic.name, number)) and topic.room(member) > 0
