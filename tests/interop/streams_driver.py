"""Kafka Streams' TopologyTestDriver (java/driver), asked in lines of JSON."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from tests.interop import toolchain
from tests.streams.scene import Raw


class Referee:
    """One JVM for many programs. Whoever makes it uses it as a context; leaving that ends the program."""

    def __enter__(self) -> "Referee":
        command = toolchain.streams_driver()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(30)

    def run(
        self, program: Sequence[Mapping[str, str]], config: Mapping[str, str], steps: Sequence[Mapping[str, Any]]
    ) -> tuple[str, list[tuple[dict[str, list[Raw]], str | None]]]:
        """The description of the topology, and for each step the outputs by topic and the error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        job = {"program": program, "config": dict(config), "inputs": steps}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "error" not in answer, f"{answer['error']} for {job}"
        made = []
        for step in answer["steps"]:
            outputs = {topic: [_raw(record) for record in records] for topic, records in step["out"].items()}
            made.append((outputs, step.get("error")))
        return answer["describe"], made


def _raw(record: Sequence[Any]) -> Raw:
    key, value, timestamp, headers = record
    return _bytes(key), _bytes(value), timestamp, tuple((name, _bytes(content)) for name, content in headers)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
