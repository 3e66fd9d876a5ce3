"""A node that is killed: what was acknowledged is not delivered again, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.wire_client import WireClient
from tests.interop.server import SINGLE_NODE, Server, ottla
from tests.share.member import ACCEPT, REJECT, RELEASE, Member, create, outcomes, produce, set_group

_SETTINGS = {
    "group.share.assignment.interval.ms": "0",
    "share.coordinator.state.topic.num.partitions": "2",
    # Snapshots come while we look.
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
}
_RECORDS = 12


@pytest.mark.timeout(120)
def test_a_share_group_goes_on_where_it_was_when_its_node_was_killed(tmp_path: Path) -> None:
    server = Server(ottla(), tmp_path, _SETTINGS, base=SINGLE_NODE)
    server.start()
    try:
        with WireClient(server.bootstrap) as client:
            topic, _ = create(client)
            set_group(client, "g", {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "10"})
            produce(client, topic, *(b"%d" % index for index in range(_RECORDS)))
        done: set[int] = set()
        for turn in range(3):
            with Member(server.bootstrap, "g", topic, "one").join() as member:
                got = {each.offset: each.delivery_count for each in member.take(wait_ms=500)}
                assert set(got) == set(range(_RECORDS)) - done, f"turn {turn}"
                released = min(got)
                assert got[released] >= (1 if turn == 0 else 2)
                accepted, rejected = sorted(got)[1:3]
                said = [(0, released, released, [RELEASE])]
                said += [(0, accepted, accepted, [ACCEPT]), (0, rejected, rejected, [REJECT])]
                assert outcomes(member.acknowledge(*said)) == [(0, 0)]
                done |= {accepted, rejected}
                server.kill()
            server.start()
    finally:
        server.kill()
