"""Trogdor's workloads, Apache's own load tests: one agent a workload, which ends with the task's status.

They check as they go: RoundTrip that every message that it sent comes back once, ProduceBench and ConsumeBench that as
much was sent and read as they were told, the others that connections are made and answered.
"""

import json
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.interop import toolchain
from tests.interop.server import free_ports
from tests.interop.suite.outcome import FAILED, LEAST, PASSED, Outcome, Report, expected_of, judged

TIMEOUT_S = 240
MESSAGES = 10_000
_STATUS = re.compile(r"^Task (succeeded|failed) with status (.*?)^Running agent", re.MULTILINE | re.DOTALL)


def workloads(bootstrap: str, secured: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Name and specification of each. What reads comes after what writes it."""
    limits = {"durationMs": 120_000, "bootstrapServers": bootstrap, "commonClientConf": secured}
    topics = {"numPartitions": 4, "replicationFactor": 1}
    many = {**limits, "clientNode": "node0", "maxMessages": MESSAGES, "targetMessagesPerSec": 2_000}
    values = {"type": "sequential", "size": 100}
    produce = {**many, "producerNode": "node0", "activeTopics": {"bench[1-3]": topics}}
    del produce["clientNode"]
    consume = {**many, "consumerNode": "node0", "activeTopics": ["bench[1-3]"], "threadsPerWorker": 3}
    del consume["clientNode"]
    kept = {**limits, "durationMs": 10_000}
    return {
        "RoundTripWorkload": {**many, "activeTopics": {"trip[1-2]": topics}, "valueGenerator": values},
        "ProduceBench": {**produce, "transactionGenerator": {"type": "uniform", "messagesPerTransaction": 100}},
        "ConsumeBench": {
            **consume,
            "consumerGroup": "bench",
            "consumerConf": {"auto.offset.reset": "earliest", "isolation.level": "read_committed"},
        },
        "ConnectionStress": {
            **kept,
            "clientNode": "node0",
            "targetConnectionsPerSec": 50,
            "numThreads": 4,
            "action": "FETCH_METADATA",
        },
        "SustainedConnection": {
            **kept,
            "clientNode": "node0",
            "producerConnectionCount": 10,
            "consumerConnectionCount": 10,
            "metadataConnectionCount": 10,
            "topicName": "sustained",
            "numThreads": 4,
            "refreshRateMs": 500,
        },
        "ShareRoundTripWorkload": {**many, "activeTopics": {"share": topics}, "valueGenerator": values},
    }


def run(bootstrap: str, *, secured: Mapping[str, str] | None = None) -> Report:
    """Run all workloads, one after another; `secured`: the settings by which their clients come in."""
    suite = "trogdor" if secured is None else "trogdor_secured"
    specifications = workloads(bootstrap, secured or {})
    outcomes = [_run(name, specification) for name, specification in specifications.items()]
    return judged(
        suite,
        outcomes,
        expected_of(suite),
        lambda one: _run(one.name, specifications[one.name]),
        least=LEAST[suite],
    )


def _run(name: str, specification: Mapping[str, Any]) -> Outcome:
    agent_port, coordinator_port = free_ports(2)
    node = {"hostname": "localhost", "trogdor.agent.port": agent_port, "trogdor.coordinator.port": coordinator_port}
    platform = {"platform": "org.apache.kafka.trogdor.basic.BasicPlatform", "nodes": {"node0": node}}
    task = {"class": f"org.apache.kafka.trogdor.workload.{name}Spec", "startMs": 0, **specification}
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ottla-trogdor-") as directory:
        settings = Path(directory) / "agent.json"
        settings.write_text(json.dumps(platform))
        arguments = ["--agent.config", str(settings), "--node-name", "node0", "--exec", json.dumps(task)]
        try:
            done = subprocess.run(
                [*toolchain.trogdor_agent(), *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                timeout=TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            return Outcome(name, FAILED, time.monotonic() - began, f"it did not end within {TIMEOUT_S} s")
    text = done.stdout.decode(errors="replace")
    found = _STATUS.search(text)
    said = found[2].strip() if found else text[-300:]
    problem = _problem(name, said) if found and found[1] == "succeeded" and not done.returncode else said
    return Outcome(name, FAILED if problem else PASSED, time.monotonic() - began, " ".join(problem.split()))


def _problem(name: str, status: str) -> str:
    """What is wrong with the status of a task that ended well: it may have run out of time."""
    wanted = {"RoundTripWorkload": "totalReceived", "ProduceBench": "totalSent"}.get(name)
    if wanted is None or json.loads(status).get(wanted) == MESSAGES:
        return ""
    return status
