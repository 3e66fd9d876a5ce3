"""The two sides of a comparison: Apache always, and the server that the environment names."""

from collections.abc import Iterator

import pytest

from tests.interop import server as servers
from tests.interop.oracle.side import Oracle, Side
from tests.interop.oracle.wander.catalogue import SETTINGS
from tests.interop.server import Server


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Apache Kafka."""
    one = Server(servers.apache(), tmp_path_factory.mktemp("reference"), SETTINGS)
    start(one)
    yield one
    one.stop()


@pytest.fixture(scope="session")
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server that is compared with Apache. It is not the scenes' server: both sides have seen the same requests."""
    one = Server(servers.kind(request.param), tmp_path_factory.mktemp("subject"), SETTINGS)
    start(one)
    yield one
    one.stop()


def start(server: Server) -> None:
    """Start it, and wait for its coordinators: which test asks them first must not decide what is answered."""
    server.start()
    side = Side(server)
    side.await_coordinators()
    side.close()


@pytest.fixture
def oracle(reference: Server, subject: Server) -> Iterator[Oracle]:
    one = Oracle(reference, subject)
    yield one
    one.close()
