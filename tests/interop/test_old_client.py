"""Apache's clients of earlier releases: a Kafka 4 broker serves those from 2.1 on (KIP-896)."""

import json
import subprocess
from functools import partial
from typing import Any

import pytest

from tests.interop import toolchain
from tests.interop.peer import ADMIN, ALL_CODECS, Kind, Peer, Record
from tests.interop.scene import all_sorts, plain
from tests.interop.server import Server
from tests.interop.test_group import Member, await_true
from tests.interop.test_transaction import Transaction, values

pytestmark = [pytest.mark.interop, pytest.mark.long]

_KINDS = [
    Kind(
        f"java-{release}",
        partial(toolchain.old_java_peer, release),
        protocols=("classic", "consumer") if release >= "4" else ("classic",),
        admin=ADMIN | {"delete_records", "delete_group"},
    )
    for release in ("2.5.1", "2.8.2", "3.0.2", "3.3.2", "3.6.2", "3.9.1", "4.0.0")
]


@pytest.mark.parametrize("peer", _KINDS, ids=[kind.name for kind in _KINDS], indirect=True)
def test_a_java_client_of_an_earlier_release_works_as_todays(peer: Peer, name: str) -> None:
    peer.create(name, len(ALL_CODECS), retention_ms="123456000")
    assert peer.ask("configs", topic=name)["configs"]["retention.ms"] == "123456000"
    sent = {}
    for index, codec in enumerate(ALL_CODECS):
        records = all_sorts(peer.kind, index)
        offsets = peer.produce(name, records, codec=codec, idempotent=bool(index % 2))
        sent.update({(index, offset): record for offset, record in zip(offsets, records, strict=True)})
    assert peer.consume(name, range(len(ALL_CODECS)), len(sent)) == sent
    at = next(iter(sent.values())).timestamp
    assert peer.ask("offsets", topic=name, partition=0, at=at) == {"offset": 0}
    for protocol in peer.kind.protocols:
        group = f"{name}-{protocol}"
        assert _read_by_a_member(peer, group, name, protocol, len(sent)) == sent
        committed = {str(index): len(sent) // len(ALL_CODECS) for index in range(len(ALL_CODECS))}
        assert peer.ask("committed", group=group, topic=name) == {"offsets": committed}
        assert group in peer.ask("groups")["groups"]
        peer.call("delete_group", group=group)
    moved = f"{name}-moved"
    peer.create(moved, 1)
    Transaction(peer, moved, plain(3), commit=False).end()
    Transaction(peer, moved, plain(4), commit=True, offsets={0: 2}).end()
    found = peer.consume(moved, [0], 4, isolation="read_committed")
    assert values(found) == [record.value for record in plain(4)]
    assert peer.ask("committed", group=moved, topic=moved) == {"offsets": {"0": 2}}
    assert peer.ask("delete_records", topic=name, partition=0, offset=2) == {"low_watermark": 2}
    peer.call("add_partitions", topic=name, partitions=len(ALL_CODECS) + 1)
    peer.call("delete", topic=name)


def _read_by_a_member(peer: Peer, group: str, topic: str, protocol: str, count: int) -> dict[tuple[int, int], Record]:
    member = Member(peer, group, [topic], protocol)
    await_true([member], lambda: len(member.records) == count, "all records")
    member.leave()
    return member.records


@pytest.mark.parametrize("release", ["2.1.1"])
def test_programs_of_the_oldest_client_write_and_read(release: str, server: Server, helper: Peer, name: str) -> None:
    helper.create(name, 2)
    where = ["--broker-list", server.bootstrap, "--topic", name, "--max-messages", "500"]
    events = _events([*toolchain.old_tool(release, "VerifiableProducer"), *where, "--acks", "-1"])
    assert events[-1]["acked"] == 500
    reading = [*where, "--group-id", name, "--reset-policy", "earliest"]
    events = _events([*toolchain.old_tool(release, "VerifiableConsumer"), *reading])
    assert sum(each["count"] for each in events if each["name"] == "records_consumed") == 500
    assert sum(helper.ask("committed", group=name, topic=name)["offsets"].values()) == 500
    copied = f"{name}-copied"
    helper.create(copied, 1)
    copying = ["--broker-list", server.bootstrap, "--input-topic", name, "--input-partition", "0"]
    into = ["--output-topic", copied, "--consumer-group", copied, "--transactional-id", copied, "--max-messages", "200"]
    _events([*toolchain.old_tool(release, "TransactionalMessageCopier"), *copying, *into])
    assert values(helper.consume(copied, [0], 200, isolation="read_committed")) == values(
        helper.consume(name, [0], 200)
    )


def _events(command: list[str]) -> list[dict[str, Any]]:
    """What a program says in lines of JSON, when it has ended."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
