"""One Apache controller for all tests here; each has brokers of its own."""

from collections.abc import Iterator
from itertools import count

import pytest

from tests.interop.controller.apache import ApacheController
from tests.interop.controller.duel import Duel
from tests.interop.controller.fleet import Fleet

_FIRST = count(1000, 1000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of this needs a JVM."""
    for item in items:
        if "tests/interop/controller" in str(item.path):
            item.add_marker("interop")


@pytest.fixture(scope="session")
def apache_controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheController]:
    one = ApacheController(tmp_path_factory.mktemp("controller"))
    one.start()
    yield one
    one.stop()


@pytest.fixture(scope="session")
def duel(apache_controller: ApacheController) -> Iterator[Duel]:
    one = Duel(apache_controller)
    yield one
    one.close()


@pytest.fixture
def fleet(duel: Duel) -> Iterator[Fleet]:
    if duel.has_failed:
        pytest.fail("the two sides differ since an earlier test")
    duel.story.clear()
    one = Fleet(duel, next(_FIRST))
    yield one
    if not duel.has_failed:
        one.retire()
