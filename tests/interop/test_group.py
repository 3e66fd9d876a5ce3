"""Consumer groups: members come and go, every record is delivered, and committed offsets are where the next begins.

The second member comes when the first has its part: two aiokafka members that begin in the same moment can join again
and again in step with each other, against Apache too (FINDINGS.md).
Delivery is at least once: a record may be seen by the member that lost a partition and by the one that took it.
"""

import time
from collections.abc import Callable

import pytest

from tests.interop.peer import KINDS, Json, Kind, Peer, Process, Record
from tests.interop.scene import each_peer, plain

PATIENCE_S = 45.0


class Member:
    """One member of a group: a running `group` job, and what it has said so far."""

    def __init__(self, peer: Peer, group: str, topics: list[str], protocol: str, assignor: str | None = None) -> None:
        self.name = peer.name
        self.process: Process = peer.begin("group", group=group, topics=topics, protocol=protocol, assignor=assignor)
        self.partitions: set[tuple[str, int]] = set()
        self.records: dict[tuple[int, int], Record] = {}
        self.changes: list[Json] = []

    def listen(self) -> None:
        for line in self.process.waiting():
            if "assigned" in line or "revoked" in line:
                self.changes.append(line)
                self.partitions -= {(topic, partition) for topic, partition in line.get("revoked", ())}
                self.partitions |= {(topic, partition) for topic, partition in line.get("assigned", ())}
            elif "all" in line:  # a client that tells the whole of its part, not the change
                self.changes.append(line)
                self.partitions = {(topic, partition) for topic, partition in line["all"]}
            elif "o" in line:
                self.records[line["p"], line["o"]] = Record.from_json(line)

    def leave(self) -> None:
        if self.process.busy:
            self.process.tell(op="leave")
        await_true([self], lambda: not self.process.busy, "the member left")


def await_true(members: list[Member], holds: Callable[[], bool], what: str) -> None:
    """Listen to the members until it holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        for member in members:
            member.listen()
            assert member.process.alive, member.process.errors()
        if time.monotonic() > deadline:
            said = "\n".join(
                f"{m.name}: {sorted(m.partitions)}, {len(m.records)} records, {m.changes}\n{m.process.errors()}"
                for m in members
            )
            raise AssertionError(f"not within {PATIENCE_S:.0f} s: {what}\n{said}")
        time.sleep(0.02)


def shared_out(members: list[Member], partitions: int) -> bool:
    """Every member has a part, and every partition exactly one member."""
    held = [partition for member in members for partition in member.partitions]
    return all(member.partitions for member in members) and len(held) == partitions == len(set(held))


def by_protocol(can: Callable[[Kind], bool] = lambda kind: True) -> pytest.MarkDecorator:
    pairs = [(kind, protocol) for kind in KINDS.values() if can(kind) for protocol in kind.protocols]
    ids = [f"{kind.name}-{protocol}" for kind, protocol in pairs]
    return pytest.mark.parametrize(("peer", "protocol"), pairs, ids=ids, indirect=["peer"])


@by_protocol()
def test_two_members_share_the_partitions_and_one_takes_over_when_the_other_leaves(
    peer: Peer, protocol: str, helper: Peer, name: str
) -> None:
    helper.create(name, 4)
    helper.produce(name, plain(80, partitions=4))
    first = Member(peer, name, [name], protocol)
    members = [first]
    try:
        await_true(members, lambda: len(first.records) == 80, "the first member has all 80 records")
        second = Member(peer, name, [name], protocol)
        members.append(second)
        await_true(members, lambda: shared_out(members, 4), "both members have a part of the 4 partitions")
        helper.produce(name, plain(80, partitions=4, start=80))
        everything = {(number % 4, number // 4) for number in range(160)}
        await_true(members, lambda: first.records.keys() | second.records.keys() == everything, "160 records delivered")
        assert second.records
        first.leave()
        await_true([second], lambda: len(second.partitions) == 4, "the second member took all 4 partitions")
        before = set(second.records)
        helper.produce(name, plain(80, partitions=4, start=160))
        later = {(number % 4, number // 4) for number in range(160, 240)}
        await_true([second], lambda: later <= second.records.keys(), "the last 80 records reached the second member")
        # What the first member committed is not delivered again to the one that took over.
        assert set(second.records) - before == later
    finally:
        for member in members:
            member.leave()


@by_protocol()
def test_a_group_goes_on_where_it_was_committed(peer: Peer, protocol: str, helper: Peer, name: str) -> None:
    helper.create(name, 2)
    helper.produce(name, plain(50, partitions=2))
    first = Member(peer, name, [name], protocol)
    await_true([first], lambda: len(first.records) == 50, "50 records")
    first.leave()
    assert helper.ask("committed", group=name, topic=name) == {"offsets": {"0": 25, "1": 25}}
    helper.produce(name, plain(10, partitions=2, start=50))
    again = Member(peer, name, [name], protocol)
    await_true([again], lambda: len(again.records) >= 10, "the 10 new records")
    again.leave()
    assert sorted(again.records) == [(partition, 25 + n) for partition in range(2) for n in range(5)]


@by_protocol()
def test_a_member_that_dies_is_missed_and_its_partitions_go_to_the_others(
    peer: Peer, protocol: str, helper: Peer, name: str
) -> None:
    helper.create(name, 2)
    first = Member(peer, name, [name], protocol)
    await_true([first], lambda: len(first.partitions) == 2, "the first member has both partitions")
    second = Member(peer, name, [name], protocol)
    members = [first, second]
    await_true(members, lambda: shared_out(members, 2), "both members have one partition")
    first.process.kill()
    helper.produce(name, plain(20, partitions=2))
    try:
        await_true([second], lambda: len(second.records) == 20, "the other member has all 20 records")
    finally:
        second.leave()


@each_peer(lambda kind: kind.ranges and kind.name != "librdkafka")
def test_members_of_two_libraries_share_one_group(peer: Peer, helper: Peer, name: str) -> None:
    helper.create(name, 4)
    first = Member(helper, name, [name], "classic", "range")
    await_true([first], lambda: len(first.partitions) == 4, "the first member has all 4 partitions")
    second = Member(peer, name, [name], "classic", "range")
    members = [first, second]
    try:
        await_true(members, lambda: shared_out(members, 4), "each library has a part of the 4 partitions")
        helper.produce(name, plain(40, partitions=4))
        await_true(members, lambda: len(first.records) + len(second.records) == 40, "40 records")
        assert first.records
        assert second.records
    finally:
        for member in members:
            member.leave()
