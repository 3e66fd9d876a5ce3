"""One embedded node a test module, and a raw client to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ottla
from tests.broker.wire_client import WireClient


@pytest.fixture(scope="module")
def node() -> Iterator[ottla.Node]:
    with ottla.Node() as node:
        yield node


@pytest.fixture
def client(node: ottla.Node) -> Iterator[WireClient]:
    with WireClient(node.bootstrap_servers) as client:
        yield client
