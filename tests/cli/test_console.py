"""Kafka's tools, ours, answer what Apache's have answered (tests/cli/console)."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla
from tests.cli.console_scene import play, read, scenes
from tests.cli.kafka_tool import SCRIPTS, kafka

#: Apache's is a shell script without a class behind it (test_server.py).
_SCRIPTS_ONLY = {"kafka-server-stop"}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A node of its own: scenes change the settings of brokers and users."""
    with ottla.Node() as node:
        yield node.bootstrap_servers


@pytest.mark.parametrize("path", scenes(), ids=lambda path: path.stem)
def test_our_tools_answer_as_apaches(path: Path, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTTLA_WRITE_SCENES", raising=False)
    play(path, kafka, server, f"s{uuid.uuid4().hex[:8]}", tmp_path)


def test_every_tool_has_a_scene() -> None:
    played = {step.command.split()[1] for path in scenes() for step in read(path)[1] if step.command.startswith("$")}
    scripts = {name for name in SCRIPTS if name.startswith("kafka-") and not name.endswith(".sh")}
    assert scripts - played == _SCRIPTS_ONLY


def test_each_tool_is_there_with_sh_too() -> None:
    names = {name for name in SCRIPTS if name.startswith("kafka-")}
    assert {name for name in names if not name.endswith(".sh") and f"{name}.sh" not in names} == set()
    assert all(SCRIPTS[name] == SCRIPTS[name.removesuffix(".sh")] for name in names)


def test_importing_a_tool_is_quick() -> None:
    """No client, no rich: an option that is wrong is told at once."""
    program = (
        "import sys, ottla.cli.kafka.topics.topic;"
        "print([n for n in ('ottla.client', 'rich', 'asyncio') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=30, env=os.environ, check=True)
    assert done.stdout == b"[]\n"


#: The scripts in Apache Kafka 4.3.1's bin/.
_APACHES = """
connect-distributed connect-mirror-maker connect-plugin-path connect-standalone kafka-acls kafka-broker-api-versions
kafka-client-metrics kafka-cluster kafka-configs kafka-console-consumer kafka-console-producer
kafka-console-share-consumer kafka-consumer-groups kafka-consumer-perf-test kafka-delegation-tokens kafka-delete-records
kafka-dump-log kafka-e2e-latency kafka-features kafka-get-offsets kafka-groups kafka-jmx kafka-leader-election
kafka-log-dirs kafka-metadata-quorum kafka-metadata-shell kafka-producer-perf-test kafka-reassign-partitions
kafka-replica-verification kafka-run-class kafka-server-start kafka-server-stop kafka-share-consumer-perf-test
kafka-share-groups kafka-storage kafka-streams-application-reset kafka-streams-groups kafka-topics kafka-transactions
kafka-verifiable-consumer kafka-verifiable-producer kafka-verifiable-share-consumer trogdor
"""


def test_every_script_of_apaches_is_here_or_has_a_reason() -> None:
    reasons = (Path(__file__).parents[2] / "docs/internals/tools.md").read_text().rpartition("that are not here")[2]
    missing = [name for name in _APACHES.split() if name not in SCRIPTS and f"`{name}`" not in reasons]
    assert [name for name in missing if not (name.startswith("connect-") and "`connect-*`" in reasons)] == []
    assert [name for name in SCRIPTS if f"`{name}`" in reasons] == []
