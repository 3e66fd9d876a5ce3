"""A share group moves between Apache Kafka 4.3.1 and this node, on the same log directories, and back."""

from pathlib import Path

import pytest

from tests.broker.wire_client import WireClient
from tests.interop import server as servers
from tests.interop.server import Server
from tests.share.member import ACCEPT, REJECT, RELEASE, Got, Member, create, outcomes, produce, set_group

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

_SETTINGS = {
    # Updates and snapshots of the share state, both.
    "share.coordinator.snapshot.update.records.per.snapshot": "2",
}
_RECORDS = 20


def _turn(server: Server, topic: str, done: set[int]) -> dict[int, int]:
    """One member reads all there is, settles two records and releases one; what it got, by offset."""
    with Member(server.bootstrap, "g", topic, "one").join() as member:
        got = {each.offset: each.delivery_count for each in _all(member, _RECORDS - len(done))}
        released, accepted, rejected = sorted(got)[:3]
        said = [
            (0, released, released, [RELEASE]),
            (0, accepted, accepted, [ACCEPT]),
            (0, rejected, rejected, [REJECT]),
        ]
        assert outcomes(member.acknowledge(*said)) == [(0, 0)]
        done |= {accepted, rejected}
        return got


def _all(member: Member, wanted: int) -> list[Got]:
    got = member.take(wait_ms=500, tries=60)
    while len(got) < wanted:
        more = member.take(wait_ms=500, tries=60)
        assert more, f"{len(got)} of {wanted} records"
        got += more
    return got


@pytest.mark.parametrize(
    "kills", [pytest.param(False, id="stopped in good order", marks=pytest.mark.long), pytest.param(True, id="killed")]
)
def test_a_share_group_goes_on_under_the_other_server(tmp_path: Path, *, kills: bool) -> None:
    server = Server(servers.apache(), tmp_path, _SETTINGS)
    server.start()
    try:
        with WireClient(server.bootstrap) as client:
            topic, _ = create(client)
            set_group(client, "g", {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "10"})
            produce(client, topic, *(b"%d" % index for index in range(_RECORDS)))
        done: set[int] = set()
        for number, kind in enumerate(("apache", "ottla", "apache", "ottla")):
            if number:
                if kills:
                    server.kill()
                else:
                    server.stop()
                server.kind = servers.kind(kind)
                server.start()
            got = _turn(server, topic, done)
            assert set(got) == set(range(_RECORDS)) - (done - set(got)), f"turn {number}, at {kind}"
            # The record that every turn releases has been delivered once more by each.
            assert got[0] == number + 1, f"turn {number}, at {kind}"
    finally:
        server.kill()
