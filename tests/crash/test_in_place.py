"""Apache Kafka 4.3.1 and this node take turns on the same log directories, from the same server.properties."""

from pathlib import Path

import pytest

from tests.crash.content import Content, OpenTransaction, Retrier, secrets
from tests.crash.inventory import Inventory, apache_only, assert_same, settled, take
from tests.interop import server as servers
from tests.interop.server import Server

pytestmark = [pytest.mark.interop, pytest.mark.timeout(420)]

_SETTINGS = {
    # The least that Apache takes: logs of several segments, and a snapshot of the metadata at every turn.
    "log.segment.bytes": "1048576",
    "metadata.log.max.record.bytes.between.snapshots": "500",
    # Compaction would take records away between two inventories.
    "log.cleaner.backoff.ms": "600000",
}


class Relay:
    """One set of directories, and the server that has it now."""

    def __init__(self, directory: Path, *, kills: bool) -> None:
        self.server = Server(servers.apache(), directory, _SETTINGS)
        self.kills = kills
        self.server.start()

    @property
    def bootstrap(self) -> str:
        return self.server.bootstrap

    def hand_over(self, to: str) -> None:
        """End the server, in good order or by SIGKILL, and start the other kind on what it left."""
        if self.kills:
            self.server.kill()
        else:
            self.server.stop()
        self.server.kind = servers.kind(to)
        self.server.start()

    def check(self, expected: Inventory) -> None:
        assert_same(take(self.bootstrap), expected)


@pytest.mark.parametrize("kills", [False, True], ids=["stopped in good order", "killed"])
def test_everything_is_there_on_the_other_server_and_back(tmp_path: Path, *, kills: bool) -> None:
    relay = Relay(tmp_path, kills=kills)
    try:
        _take_turns(relay)
    finally:
        relay.server.kill()


def _take_turns(relay: Relay) -> None:
    first = Content(relay.bootstrap, "apache")
    first.make()
    secrets(relay.bootstrap)
    kept = apache_only(relay.bootstrap)
    begun = OpenTransaction(relay.bootstrap, "begun-at-apache", first.name("none"))
    retrier = Retrier(relay.bootstrap, first.name("zstd"))
    left = settled(relay.bootstrap)

    relay.hand_over("ottla")
    relay.check(left)
    retrier.send_again(relay.bootstrap)
    begun.end(relay.bootstrap, committed=True)
    second = Content(relay.bootstrap, "ottla")
    second.make()
    begun = OpenTransaction(relay.bootstrap, "begun-at-ottla", first.name("none"))
    left = settled(relay.bootstrap)

    relay.hand_over("apache")
    relay.check(left)
    assert apache_only(relay.bootstrap) == kept
    retrier.send_again(relay.bootstrap)
    begun.end(relay.bootstrap, committed=False)
    Content(relay.bootstrap, "apache-again").make()
    left = settled(relay.bootstrap)

    relay.hand_over("ottla")
    relay.check(left)
    retrier.send_again(relay.bootstrap)
    relay.hand_over("ottla")
    Content(relay.bootstrap, "ottla-again").make()
    left = settled(relay.bootstrap)

    relay.hand_over("apache")
    relay.check(left)
    assert apache_only(relay.bootstrap) == kept
