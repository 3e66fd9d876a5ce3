"""Pytest fixtures: a real node in the test's process. Installed with Ottla; nothing has to be imported.

def test_my_service(ottla_node, ottla_topic):
    service = Service(bootstrap_servers=ottla_node.bootstrap_servers, topic=ottla_topic)

`ottla_node.faults` makes the node fail as the test says, `ottla_node.clock` lets time pass on it: the list is in
docs/internals/testing.md. A fresh node takes about ten milliseconds; where many tests share one, write a fixture of a
wider scope around `ottla.Node()`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ottla.broker.embedded import Node


@pytest.fixture
def ottla_node() -> "Iterator[Node]":
    """A fresh node on a free port of 127.0.0.1, with its data in a temporary directory; gone after the test."""
    from ottla.broker.embedded import Node

    with Node() as node:
        yield node


@pytest.fixture
def ottla_topic(ottla_node: "Node", request: pytest.FixtureRequest) -> str:
    """The name of a new topic with one partition on `ottla_node`, made from the test's own name."""
    name = "".join(each if each.isalnum() or each in "._-" else "-" for each in request.node.name)[:249]
    ottla_node.create_topic(name)
    return name
