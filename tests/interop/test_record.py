"""Records come back as they were sent: by every client, with every codec and every kind of acknowledgement."""

import pytest

from tests.interop.peer import ALL_CODECS, KINDS, Peer, Record
from tests.interop.result import Results
from tests.interop.scene import all_sorts, each_peer, plain


@each_peer()
def test_a_client_says_which_it_is(peer: Peer, results: Results) -> None:
    about = peer.ask("about")["client"]
    assert about
    results.clients[peer.name] = about


def _pairs(property: str) -> pytest.MarkDecorator:
    pairs = [(kind, value) for kind in KINDS.values() for value in getattr(kind, property)]
    ids = [f"{kind.name}-{value}" for kind, value in pairs]
    return pytest.mark.parametrize(("peer", "value"), pairs, ids=ids, indirect=["peer"])


@_pairs("codecs")
def test_a_client_reads_back_every_sort_of_record_in_each_of_its_codecs(
    peer: Peer, value: str, helper: Peer, name: str
) -> None:
    helper.create(name, 1)
    records = all_sorts(peer.kind)
    assert peer.produce(name, records, codec=value) == list(range(len(records)))
    assert peer.consume(name, [0], len(records)) == {(0, offset): record for offset, record in enumerate(records)}


@_pairs("acks")
def test_a_client_writes_with_each_of_its_acks(peer: Peer, value: str, helper: Peer, name: str) -> None:
    helper.create(name, 2)
    records = plain(40, partitions=2)
    offsets = peer.produce(name, records, acks=value)
    # Without an acknowledgement the client knows no offset: clients say -1 or their zero.
    if value != "0":
        assert offsets == [number // 2 for number in range(40)]
    assert _by_partition(peer.consume(name, [0, 1], 40)) == _split(records, 2)


@each_peer(lambda kind: kind.idempotent)
def test_an_idempotent_producer_writes_every_record_once(peer: Peer, helper: Peer, name: str) -> None:
    helper.create(name, 3)
    records = plain(300, partitions=3)
    peer.produce(name, records, idempotent=True)
    assert _by_partition(peer.consume(name, [0, 1, 2], 300)) == _split(records, 3)
    for partition in range(3):
        assert peer.ask("offsets", topic=name, partition=partition, at="latest") == {"offset": 100}


@each_peer()
def test_a_client_reads_from_the_middle(peer: Peer, helper: Peer, name: str) -> None:
    helper.create(name, 1)
    records = plain(100)
    helper.produce(name, records)
    found = peer.consume(name, [0], 37, start={0: 63})
    assert found == {(0, offset): records[offset] for offset in range(63, 100)}


@each_peer(argument="other")
@each_peer()
def test_what_one_client_writes_every_client_reads(peer: Peer, other: Peer, helper: Peer, name: str) -> None:
    codecs = [codec for codec in ALL_CODECS if codec in peer.kind.codecs and codec in other.kind.codecs]
    helper.create(name, len(codecs))
    sent = {}
    for partition, codec in enumerate(codecs):
        records = all_sorts(peer.kind, partition)
        for offset, record in zip(peer.produce(name, records, codec=codec), records, strict=True):
            sent[partition, offset] = record
    assert other.consume(name, range(len(codecs)), len(sent)) == sent


def _split(records: list[Record], partitions: int) -> dict[int, list[Record]]:
    return {partition: [one for one in records if one.partition == partition] for partition in range(partitions)}


def _by_partition(found: dict[tuple[int, int], Record]) -> dict[int, list[Record]]:
    """Records by partition in the order of their offsets; also checks that offsets have no gap."""
    split: dict[int, list[Record]] = {}
    for (partition, offset), record in sorted(found.items()):
        there = split.setdefault(partition, [])
        assert offset == len(there), f"partition {partition} has a gap before {offset}"
        there.append(record)
    return split
