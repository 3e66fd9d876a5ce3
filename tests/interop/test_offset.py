"""Offsets by time: the first record at or after a timestamp, by every client."""

from tests.interop.peer import Peer, Record
from tests.interop.scene import NOW_MS, each_peer


@each_peer()
def test_an_offset_is_found_by_its_timestamp(peer: Peer, helper: Peer, name: str) -> None:
    helper.create(name, 1)
    helper.produce(name, [Record(0, NOW_MS + 100 * number, None, b"%d" % number) for number in range(20)])

    def at(where: str | int) -> int:
        offset: int = peer.ask("offsets", topic=name, partition=0, at=where)["offset"]
        return offset

    assert at("earliest") == 0
    assert at("latest") == 20
    assert at(NOW_MS + 700) == 7
    assert at(NOW_MS + 701) == 8
    assert at(NOW_MS - 1) == 0


@each_peer()
def test_the_first_offset_counts_where_timestamps_go_back(peer: Peer, helper: Peer, name: str) -> None:
    helper.create(name, 1)
    for number, later_ms in enumerate([500, 100, 900, 300, 900]):
        helper.produce(name, [Record(0, NOW_MS + later_ms, None, b"%d" % number)])
    found = [peer.ask("offsets", topic=name, partition=0, at=NOW_MS + at_ms)["offset"] for at_ms in (50, 200, 600, 900)]
    assert found == [0, 0, 2, 2]


@each_peer(lambda kind: kind.no_offset is not None)
def test_after_the_last_timestamp_there_is_no_offset(peer: Peer, helper: Peer, name: str) -> None:
    helper.create(name, 1)
    helper.produce(name, [Record(0, NOW_MS, None, b"last")])
    assert peer.ask("offsets", topic=name, partition=0, at=NOW_MS + 1)["offset"] == peer.kind.no_offset
