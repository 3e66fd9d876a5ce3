"""Fixtures of the interop suite: the server, the peers, and the table of results."""

import os
from collections.abc import Generator, Iterator, Mapping
from itertools import count
from pathlib import Path

import pytest

from tests.interop import server as servers
from tests.interop.peer import KINDS, Crew, Kind, Peer
from tests.interop.result import Results
from tests.interop.server import Server

RESULTS = pytest.StashKey[Results]()
_names = count()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`server` is each server that the environment names; a scene runs with each."""
    names = os.environ.get("OTTLA_INTEROP_SERVER", "ottla").split(",")
    for fixture in ("server", "subject"):
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, names, indirect=True, scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What needs a foreign peer or Apache's server is marked `interop`; all get more time than the suite's default."""
    here = Path(__file__).parent
    for item in items:
        if here not in item.path.parents:
            continue
        if takes_long(item):
            item.add_marker("long")
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(240))
        call = getattr(item, "callspec", None)
        values = call.params.values() if call else ()
        fixtures = getattr(item, "fixturenames", ())
        foreign = any(isinstance(value, Kind) and value.foreign for value in values)
        if foreign or "apache" in values or "subject" in fixtures:
            item.add_marker("interop")


def takes_long(item: pytest.Item) -> bool:
    """What the short form leaves out: most pairs of the matrix (each peer still writes for one and reads from one),
    and all but two of the members that die, which are mostly waiting.
    """
    call = getattr(item, "callspec", None)
    if call is None:
        return False
    peer, other = call.params.get("peer"), call.params.get("other")
    if isinstance(peer, Kind) and isinstance(other, Kind):
        kinds = list(KINDS.values())
        return kinds[(kinds.index(peer) + 1) % len(kinds)] is not other
    name = getattr(item, "originalname", "")
    return name.startswith("test_a_member_that_dies") and isinstance(peer, Kind) and peer.name != "librdkafka"


def pytest_configure(config: pytest.Config) -> None:
    config.stash[RESULTS] = Results()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    call = getattr(item, "callspec", None)
    if call is not None and Path(__file__).parent in item.path.parents:
        kinds = [value.name for value in call.params.values() if isinstance(value, Kind)]
        item.config.stash[RESULTS].note(item, report, server_of(call.params), kinds)
    return report


def server_of(params: Mapping[str, object]) -> str:
    return str(params.get("server") or params.get("subject") or "ottla")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """`make interop` says where the table goes."""
    path = os.environ.get("OTTLA_INTEROP_RESULTS")
    if path:
        session.config.stash[RESULTS].write(Path(path))


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server under test, one for the session. A scene may restart it."""
    one = Server(servers.kind(request.param), tmp_path_factory.mktemp(request.param), servers.KEPT)
    one.start()
    yield one
    one.stop()


@pytest.fixture(scope="session")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    one = Crew(tmp_path_factory.mktemp("peers"))
    yield one
    one.close()


@pytest.fixture
def peer(request: pytest.FixtureRequest, server: Server, crew: Crew) -> Peer:
    """The peer that a scene is run with: parametrize `peer` indirectly with a Kind."""
    return Peer(request.param, server.bootstrap, crew)


@pytest.fixture
def other(request: pytest.FixtureRequest, server: Server, crew: Crew) -> Peer:
    """A second peer, of another library or the same."""
    return Peer(request.param, server.bootstrap, crew)


@pytest.fixture
def helper(server: Server, crew: Crew) -> Peer:
    """The peer that makes topics where a scene is about something else."""
    return Peer(KINDS["librdkafka"], server.bootstrap, crew)


@pytest.fixture
def results(request: pytest.FixtureRequest) -> Results:
    return request.config.stash[RESULTS]


@pytest.fixture
def name() -> str:
    """A name that no other scene uses, for a topic or a group."""
    return f"scene-{os.getpid()}-{next(_names)}"
