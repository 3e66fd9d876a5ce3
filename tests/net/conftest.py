"""Ends of connections on loops of their own, which end with the test."""

from collections.abc import Iterator

import pytest

from ottla.host.loop import new_loop
from tests.net.test_inbound import Served
from tests.net.test_outbound import FarEnd


@pytest.fixture
def served() -> Iterator[Served]:
    """A listener."""
    loop = new_loop()
    served = Served(loop)
    yield served
    served.listener.close()
    loop.close()


@pytest.fixture
def far() -> Iterator[FarEnd]:
    """The peer of an outbound connection."""
    loop = new_loop()
    far = FarEnd(loop)
    yield far
    far.close()
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
