"""aiokafka's tests that want a node, from its repository, with the client of the same release.

They start a container with a node that has a listener of each security protocol. `plugin/containers` stands for
docker's client, and `aiokafka_node.py` for the image. Left out are the tests of GSSAPI.
"""

import json
import sys
from collections.abc import Sequence
from functools import partial

from tests.interop import made, toolchain
from tests.interop.suite import pytest_program
from tests.interop.suite.outcome import LEAST, Outcome, Report, expected_of, judged

SUITE = "aiokafka"
TIMEOUT_S = 1800
_BELOW = "tests/"
_FILES = (
    *("admin", "client", "conn", "consumer", "coordinator", "pep492", "producer", "sasl", "sender"),
    *("transactional_consumer", "transactional_producer"),
)


def run(kind: str) -> Report:
    """Run them all against a server of this kind."""
    return judged(
        SUITE,
        _run(kind, [f"{_BELOW}test_{each}.py" for each in _FILES]),
        expected_of(SUITE),
        partial(pytest_program.alone, partial(_run, kind), _BELOW),
        least=LEAST[SUITE],
    )


def _run(kind: str, which: Sequence[str]) -> list[Outcome]:
    python, sources = toolchain.aiokafka_tests()
    containers = {
        "node": [sys.executable, "-m", "tests.interop.suite.aiokafka_node", kind],
        "root": str(toolchain.ROOT),
        "scripts": str(toolchain.kafka_home() / "bin"),
    }
    settings = {
        "OTTLA_CONTAINERS": json.dumps(containers),
        "PYTHONPATH": str(made.HERE / "suite" / "plugin" / "containers"),
    }
    options = ["--docker-image=aiolibs/kafka:2.13_4.3.1", "--no-pull", "-oasyncio_mode=auto", "-k=not gssapi"]
    return pytest_program.run(python, sources, [*options, *which], settings, TIMEOUT_S, below=_BELOW)
