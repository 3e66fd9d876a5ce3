"""The checker: what workers were promised, against what the logs hold when all is quiet.

What must hold, whatever died and whenever:
- every acknowledged record is there once, at the offset that was acknowledged, with the bytes that were sent;
- a record that nobody acknowledged is there once or not at all, and no record is there that nobody sent;
- offsets have no gaps, every batch has its CRC, the order of each producer is the order in the log;
- of a committed transaction `read_committed` sees all, of an aborted one nothing;
- what a reader was served at an offset is what is there;
- a confirmed offset of a group never goes back; the high watermark is the end of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ottla.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.broker.wire_client import WireClient
from tests.crash.inventory import Entry, again, fetch, marks, read_batches, records
from tests.crash.load import Reader, Sent, Transfer
from tests.crash.member import GroupMember


class Sender(Protocol):
    """Remembers the batches that it sent."""

    @property
    def sent(self) -> list[Sent]: ...


class Transacting(Protocol):
    """Remembers its transactions over the partitions 0 and 1 of a topic."""

    @property
    def topic(self) -> str: ...
    @property
    def transfers(self) -> list[Transfer]: ...


@dataclass
class Tally:
    """What was found right. Rounds are added up."""

    acknowledged: int = 0
    transactions: int = 0
    served: int = 0
    commits: int = 0

    def add(self, other: Tally) -> None:
        self.acknowledged += other.acknowledged
        self.transactions += other.transactions
        self.served += other.served
        self.commits += other.commits


def partition_log(client: WireClient, topic: str, partition: int) -> list[Entry]:
    """All records of a partition; offsets must have no gap, and the high watermark must be the end."""
    found = marks(client, (topic, partition))
    entries = list(records(client, (topic, partition), found))
    assert [each.offset for each in entries] == list(range(found.earliest, found.latest))
    high_watermark = fetch(client, (topic, partition), found.latest, wait_ms=0).high_watermark
    assert high_watermark == found.latest, f"{topic}-{partition}: {high_watermark} is not the end {found.latest}"
    return entries


def check_producers(logs: Sequence[list[Entry]], producers: Iterable[Sender]) -> int:
    """Each partition holds what was sent to it, once, in order, at the acknowledged offsets; how many records."""
    count = 0
    sent: set[bytes] = set()
    for producer in producers:
        last = [-1] * len(logs)
        where = [{each.value: each.offset for each in log} for log in logs]
        for each in producer.sent:
            offsets = [where[each.partition].get(value) for value in each.values]
            sent.update(each.values)
            if each.base_offset is None and offsets[0] is None:
                assert not any(offset is not None for offset in offsets), f"half of a batch is there: {each}"
                continue
            first = offsets[0]
            assert first is not None, f"an acknowledged batch is lost: {each}"
            assert offsets == list(range(first, first + len(offsets))), f"a batch is torn: {each}, {offsets}"
            assert each.base_offset in (None, first), f"{each} is at {first}"
            assert first > last[each.partition], f"{each} is before what was sent before it"
            last[each.partition] = first
            count += len(offsets) if each.base_offset is not None else 0
    there = [each.value for log in logs for each in log]
    assert len(there) == len(set(there)), "a record is there twice"
    assert sent.issuperset(value or b"" for value in there), "a record is there that nobody sent"
    return count


def check_transfers(client: WireClient, producer: Transacting) -> int:
    """`read_committed` sees all of each committed transaction and nothing of the others; how many were confirmed."""
    visible: set[bytes] = set()
    for partition in (0, 1):
        values = committed_values(client, producer.topic, partition)
        assert len(values) == len(set(values)), "a record of a transaction is seen twice"
        visible.update(values)
    count = 0
    for transfer in producer.transfers:
        wanted = {value for values in transfer.values for value in values}
        seen = wanted & visible
        visible -= wanted
        if transfer.acknowledged:
            assert seen == (wanted if transfer.committed else set()), f"a transaction is not whole: {transfer}"
            count += 1
        else:
            assert seen in (set(), wanted), f"half of a transaction is seen: {transfer}"
    assert not visible, f"records are seen that nobody sent: {visible}"
    return count


def committed_values(client: WireClient, topic: str, partition: int) -> list[bytes]:
    """What a consumer with read_committed gets: no marker, nothing of what the answers call aborted."""
    found: list[bytes] = []
    entries = partition_log(client, topic, partition)
    answer = fetch(client, (topic, partition), 0, isolation_level=1)
    stable = answer.last_stable_offset
    aborted: dict[tuple[int, int], None] = {}
    offset = 0
    while offset < stable:
        answer = fetch(client, (topic, partition), offset, isolation_level=1)
        aborted |= {(each.producer_id, each.first_offset): None for each in answer.aborted_transactions or ()}
        offset = max(each.last_offset for each, _ in read_batches(answer)) + 1
    starts = set(aborted)
    gone: set[int] = set()
    for each in entries:
        if each.offset >= stable:
            break
        if (each.producer_id, each.offset) in starts:
            gone.add(each.producer_id)
        if each.control:
            gone.discard(each.producer_id)
        elif each.producer_id not in gone:
            assert each.value is not None
            found.append(each.value)
    return found


def check_reader(log: list[Entry], reader: Reader) -> int:
    """What it was served is what is there, from the first on."""
    assert reader.served == [(each.offset, each.value) for each in log[: len(reader.served)]]
    return len(reader.served)


def check_member(client: WireClient, logs: Sequence[list[Entry]], member: GroupMember) -> int:
    """It read the records of its partitions without a gap, and its commits hold; how many were confirmed."""
    for partition, read in member.read.items():
        there = {each.offset: each.value for each in logs[partition]}
        for offset, value in read:
            assert there[offset] == value, f"{member.group} was given another record at {partition}/{offset}"
        # After a rebalance a consumer begins again where the group's commit is: never later, so nothing is left out.
        assert {offset for offset, _ in read} == set(range(max(offset for offset, _ in read) + 1))
    check_commits(client, member)
    return member.answers


def check_commits(client: WireClient, member: GroupMember) -> None:
    """What the node says is committed is not before what it confirmed."""
    confirmed = dict(member.committed)
    for partition, offset in committed_offsets(client, member, confirmed).items():
        before = confirmed[partition]
        assert offset >= before, f"{member.group}: {offset} after {before} was confirmed"


def committed_offsets(client: WireClient, member: GroupMember, partitions: Iterable[int]) -> dict[int, int]:
    """What the node says is committed in these partitions; -1 where nothing is."""
    topic = OffsetFetchRequestTopics(name=member.topic, partition_indexes=sorted(partitions))
    if not topic.partition_indexes:
        return {}
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=member.group, topics=[topic])])
    answer = again(lambda: client.ask(request, 8).groups[0], lambda found: (found.error_code,))
    assert not any(each.error_code for each in answer.topics[0].partitions), answer
    return {each.partition_index: each.committed_offset for each in answer.topics[0].partitions}
