"""The node stops and starts again in the middle of the work: clients find it again, nothing acknowledged is lost."""

from tests.interop.peer import Peer, Record
from tests.interop.scene import each_peer, plain
from tests.interop.server import Server
from tests.interop.test_group import Member, await_true, by_protocol


@each_peer()
def test_a_producer_goes_on_through_a_restart(peer: Peer, server: Server, helper: Peer, name: str) -> None:
    helper.create(name, 1)
    records = plain(400)
    process = peer.begin(
        "produce",
        topic=name,
        codec="none",
        acks="all",
        idempotent=peer.kind.idempotent,
        each=True,
        records=[record.to_json() for record in records],
    )
    acked: dict[int, Record] = {}
    for number, line in enumerate(process.answers(peer.timeout_s)):
        acked[line["o"]] = records[number]
        if number == 150:
            server.restart()
    assert len(acked) == 400
    helper.await_partition(name, 0)  # it was connected to the node that went
    end = helper.ask("offsets", topic=name, partition=0, at="latest")["offset"]
    found = helper.consume(name, [0], end)
    for offset, record in acked.items():
        assert found[0, offset] == record
    if peer.kind.idempotent:
        assert end == 400, "a retry was written twice"


@by_protocol()
def test_a_group_goes_on_through_a_restart(peer: Peer, protocol: str, server: Server, helper: Peer, name: str) -> None:
    helper.create(name, 2)
    helper.produce(name, plain(40, partitions=2))
    member = Member(peer, name, [name], protocol)
    try:
        await_true([member], lambda: len(member.records) == 40, "40 records before the restart")
        server.restart()
        helper.produce(name, plain(40, partitions=2, start=40))
        await_true([member], lambda: len(member.records) == 80, "40 more records after the restart")
    finally:
        member.leave()
    assert helper.ask("committed", group=name, topic=name) == {"offsets": {"0": 40, "1": 40}}


def test_topics_settings_offsets_and_records_are_there_after_a_restart(server: Server, helper: Peer, name: str) -> None:
    helper.create(name, 3, retention_ms="123456000", compression_type="lz4")
    records = plain(90, partitions=3)
    helper.produce(name, records)
    member = Member(helper, name, [name], "classic")
    await_true([member], lambda: len(member.records) == 90, "90 records")
    member.leave()
    told = helper.ask("configs", topic=name)
    found = helper.consume(name, [0, 1, 2], 90)
    server.restart()
    assert helper.ask("configs", topic=name) == told
    assert helper.consume(name, [0, 1, 2], 90) == found
    assert helper.ask("committed", group=name, topic=name) == {"offsets": {"0": 30, "1": 30, "2": 30}}


def test_what_was_acknowledged_before_a_kill_is_there(server: Server, helper: Peer, name: str) -> None:
    helper.create(name, 1)
    records = plain(200)
    helper.produce(name, records)
    server.kill()
    server.start()
    assert helper.consume(name, [0], 200) == {(0, offset): record for offset, record in enumerate(records)}
    assert helper.produce(name, plain(1, start=200)) == [200]
