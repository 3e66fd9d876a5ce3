"""kafka-python's integration tests, from its sources on PyPI.

Each of their files starts nodes of its own, with PLAINTEXT, SSL, or SASL by one mechanism, by Kafka's scripts. They get
scripts and a server.properties of ours (`kafka_script.py`), which start whichever server is asked for.
"""

import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.interop import toolchain
from tests.interop.server import SINGLE_NODE
from tests.interop.suite import pytest_program
from tests.interop.suite.outcome import LEAST, Outcome, Report, expected_of, judged

SUITE = "kafka-python"
TIMEOUT_S = 900
_BELOW = "test/integration/"
#: What kafka-python fills in and gives to the scripts.
_SETTINGS = {
    **SINGLE_NODE,
    "node.id": "{broker_id}",
    "controller.quorum.bootstrap.servers": "{host}:{controller_port}",
    "listeners": "{transport}://{host}:{port},CONTROLLER://{host}:{controller_port}",
    "advertised.listeners": "{transport}://{host}:{port}",
    "inter.broker.listener.name": "{transport}",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,{transport}:{transport}",
    "super.users": "User:ANONYMOUS",
    "listener.name.{transport}.{sasl_mechanism}.sasl.jaas.config": "{jaas_config}",
    "log.dirs": "{tmp_dir}/data",
    "num.partitions": "{partitions}",
    "auto.create.topics.enable": "{auto_create_topic}",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "3000",
}
_LINES = [
    *(f"{name}={value}" for name, value in _SETTINGS.items()),
    "{sasl_config}",
    "{ssl_config}",
    "{acl_config}",
    "",
]
_RESOURCES = {
    "kafka.properties": "\n".join(_LINES),
    # The properties have the lines of this file, too.
    "kafka_server_jaas.conf": "KafkaServer {{ {jaas_config} }};\n",
    "sasl_command.conf": "security.protocol={transport}\nsasl.mechanism={sasl_mechanism}\n"
    "sasl.jaas.config={jaas_config}\n",
}


def run(kind: str) -> Report:
    """Run all tests against servers of this kind."""
    return judged(
        SUITE,
        _run(kind, [_BELOW]),
        expected_of(SUITE),
        partial(pytest_program.alone, partial(_run, kind), _BELOW),
        least=LEAST[SUITE],
    )


def _run(kind: str, which: Sequence[str]) -> list[Outcome]:
    python, sources = toolchain.kafka_python_tests()
    with tempfile.TemporaryDirectory(prefix="ottla-kafka-python-") as name:
        directory = Path(name)
        scripts, resources = directory / "bin", directory / "servers" / "resources" / "default"
        scripts.mkdir()
        resources.mkdir(parents=True)
        for script in ("kafka-storage.sh", "kafka-run-class.sh"):
            (scripts / script).write_text(
                f'#!/bin/sh\nexec "{sys.executable}" -m tests.interop.suite.kafka_script {kind} "$@"\n'
            )
            (scripts / script).chmod(0o755)
        (scripts / "kafka-topics.sh").symlink_to(toolchain.kafka_home() / "bin" / "kafka-topics.sh")
        for resource, text in _RESOURCES.items():
            (resources / resource).write_text(text)
        settings = {
            "KAFKA_VERSION": "4.3.0",
            "KAFKA_ROOT": name,
            "PROJECT_ROOT": name,
            "PYTHONPATH": f"{sources}:{toolchain.ROOT}",
        }
        return pytest_program.run(python, sources, which, settings, TIMEOUT_S, below=_BELOW)
