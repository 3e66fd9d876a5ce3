"""What all tests share: signals as a program expects them, a limit for each test, a node, and Hypothesis.

- A shell starts its background jobs with SIGINT ignored, and every child inherits that: the tests take it back, so that
  they, and the programs they start, are interrupted as in the foreground.
- Hypothesis tries the same examples in every run; `make fuzz` and LONG=1 try others each time (profile `random`).
"""

import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

import ottla
from tests.limit import Limit

settings.register_profile(
    "fixed", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("random", parent=settings.get_profile("fixed"), derandomize=False)
settings.load_profile("fixed")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Limit(config), "ottla-limit")


@pytest.fixture(scope="module")
def node() -> Iterator[ottla.Node]:
    """An embedded node for the tests of one module."""
    with ottla.Node() as node:
        yield node
