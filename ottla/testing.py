"""Pytest fixtures: a real node in the test's process. Installed with Ottla; no import is needed.

def test_my_service(ottla_node, ottla_topic):
    service = Service(bootstrap_servers=ottla_node.bootstrap_servers, topic=ottla_topic)

@pytest.mark.ottla(settings={"message.max.bytes": 1000}, partitions=3)
def test_that_large_orders_are_refused(ottla_node, ottla_topic): ...

`ottla_node.faults` makes the node fail on demand, `ottla_node.clock` advances its time: docs/internals/testing.md has
the list. `ottla_node.produce(topic, [b"a"])`, `.records(topic)` and `.wait_for_lag(group)` write, read and wait; under
asyncio use their `_async` forms. A fresh node takes about ten milliseconds; to share one node between many tests, use
`ottla_session_node` and `ottla_session_topic` (override the fixture `ottla_session_settings` if needed).
"""

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla.embedded.cluster.cluster import Cluster
    from ottla.embedded.fixture_node import FixtureNode

_MARK = (
    "ottla(settings=None, partitions=1, topic_settings=None, nodes=3): the node's settings by Kafka's names, and those "
    "of the topic, for the fixtures ottla_node and ottla_topic; how many nodes ottla_cluster has"
)
#: Session topics get a number, since tests in different files may have the same name.
_numbers = count(1)
_ARGUMENTS = {"settings", "partitions", "topic_settings", "nodes"}


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", _MARK)


def _mark_arguments(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The arguments of the test's marks; the nearest mark wins."""
    arguments: dict[str, Any] = {}
    for mark in request.node.iter_markers("ottla"):
        if mark.args or mark.kwargs.keys() - _ARGUMENTS:
            raise pytest.UsageError(f"@pytest.mark.ottla takes {', '.join(sorted(_ARGUMENTS))} by name")
        arguments = {**mark.kwargs, **arguments}
    return arguments


@pytest.fixture
def ottla_node(request: pytest.FixtureRequest) -> "Iterator[FixtureNode]":
    """A fresh node on a free port of 127.0.0.1, with its data in a temporary directory; removed after the test."""
    from ottla.embedded.fixture_node import FixtureNode

    with FixtureNode(settings=_mark_arguments(request).get("settings")) as node:
        yield node


@pytest.fixture
def ottla_topic(ottla_node: "FixtureNode", request: pytest.FixtureRequest) -> str:
    """The name of a new topic on `ottla_node`, derived from the test's name. It has one partition by default."""
    return _new_topic(ottla_node, request, "")


@pytest.fixture(scope="session")
def ottla_session_settings() -> dict[str, object]:
    """The settings of `ottla_session_node`; override it in a conftest.py."""
    return {}


@pytest.fixture(scope="session")
def ottla_session_node(ottla_session_settings: dict[str, object]) -> "Iterator[FixtureNode]":
    """A node shared by all tests that use it. They see each other's writes: give each test its own topics."""
    from ottla.embedded.fixture_node import FixtureNode

    with FixtureNode(settings=ottla_session_settings) as node:
        yield node


@pytest.fixture
def ottla_session_topic(ottla_session_node: "FixtureNode", request: pytest.FixtureRequest) -> str:
    """The name of a new topic on `ottla_session_node` that no other test uses."""
    return _new_topic(ottla_session_node, request, f"-{next(_numbers)}")


@pytest.fixture
def ottla_cluster(request: pytest.FixtureRequest) -> "Iterator[Cluster]":
    """A fresh cluster of processes on 127.0.0.1, removed after the test: `@pytest.mark.ottla(nodes=5)`."""
    from ottla.embedded.cluster.cluster import Cluster

    arguments = _mark_arguments(request)
    with Cluster(nodes=arguments.get("nodes", 3), settings=arguments.get("settings")) as cluster:
        yield cluster


def _new_topic(node: "FixtureNode", request: pytest.FixtureRequest, ending: str) -> str:
    name = "".join(each if each.isalnum() or each in "._-" else "-" for each in request.node.name)
    name = name[: 249 - len(ending)] + ending
    arguments = _mark_arguments(request)
    node.create_topic(name, arguments.get("partitions", 1), arguments.get("topic_settings"))
    return name
