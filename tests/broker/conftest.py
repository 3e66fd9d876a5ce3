"""A raw client to the module's node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ottla
from tests.broker.wire_client import WireClient


@pytest.fixture
def client(node: ottla.Node) -> Iterator[WireClient]:
    with WireClient(node.bootstrap_servers) as client:
        yield client
