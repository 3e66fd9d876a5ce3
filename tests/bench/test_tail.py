"""The null server of `bench.tail` answers the generator, which checks each answer."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench import load

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]


def test_the_null_server_answers_every_request(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.tail", "serve", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            # Each run has connections of its own, and the second of them larger requests.
            small = load.latency(port, "tail", 3, 1_000, 0.1, 0.0)
            large = load.latency(port, "tail", 2, 200_000, 0.1, 0.0)
        finally:
            process.kill()
    assert (small["records"], large["records"]) == (100, 20_000)
