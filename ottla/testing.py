"""Pytest fixtures: a real node in the test's process. Installed with Ottla; nothing has to be imported.

def test_my_service(ottla_node, ottla_topic):
    service = Service(bootstrap_servers=ottla_node.bootstrap_servers, topic=ottla_topic)

@pytest.mark.ottla(settings={"message.max.bytes": 1000}, partitions=3)
def test_that_large_orders_are_refused(ottla_node, ottla_topic): ...

`ottla_node.faults` makes the node fail as the test says, `ottla_node.clock` lets time pass on it: the list is in
docs/internals/testing.md. A fresh node takes about ten milliseconds; where many tests share one, write a fixture of a
wider scope around `ottla.Node()`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla.embedded.node import Node

_MARK = (
    "ottla(settings=None, partitions=1, topic_settings=None): the node's settings by Kafka's names, and those of the "
    "topic, for the fixtures ottla_node and ottla_topic"
)
_KNOWN = {"settings", "partitions", "topic_settings"}


def pytest_configure(config: pytest.Config) -> None:
    """Tell pytest of the mark."""
    config.addinivalue_line("markers", _MARK)


def _asked(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the nearest mark says; what is there twice the nearest one decides."""
    asked: dict[str, Any] = {}
    for mark in request.node.iter_markers("ottla"):
        if mark.args or mark.kwargs.keys() - _KNOWN:
            raise pytest.UsageError(f"@pytest.mark.ottla takes {', '.join(sorted(_KNOWN))} by name")
        asked = {**mark.kwargs, **asked}
    return asked


@pytest.fixture
def ottla_node(request: pytest.FixtureRequest) -> "Iterator[Node]":
    """A fresh node on a free port of 127.0.0.1, with its data in a temporary directory; gone after the test."""
    from ottla.embedded.node import Node

    with Node(settings=_asked(request).get("settings")) as node:
        yield node


@pytest.fixture
def ottla_topic(ottla_node: "Node", request: pytest.FixtureRequest) -> str:
    """The name of a new topic on `ottla_node`, made from the test's own name. It has one partition."""
    name = "".join(each if each.isalnum() or each in "._-" else "-" for each in request.node.name)[:249]
    asked = _asked(request)
    ottla_node.create_topic(name, asked.get("partitions", 1), asked.get("topic_settings"))
    return name
