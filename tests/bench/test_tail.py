"""`bench.tail`: its null server answers the generator, which checks each answer, and its page says who reaches what."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from bench import load, tail

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


def test_the_page_says_who_has_a_fifth_of_apaches_tail() -> None:
    def run(p99: float, p999: float) -> dict[str, float]:
        return {"p50_ms": 0.2, "p99_ms": p99, "p999_ms": p999, "late_p99_ms": 0.01, "late_p999_ms": 0.02}

    found: dict[str, list[Mapping[str, float]]] = {
        "apache": [run(1.0, 4.0), run(1.2, 5.0), run(0.8, 6.0)],
        "ottla": [run(0.4, 0.9), run(0.3, 0.8), run(0.2, 1.5)],
        "null": [run(0.2, 0.5), run(0.1, 0.6), run(0.3, 0.7)],
    }
    facts = {"processor": "a processor", "load_average": 0.1, "commit": "abc", "date": "today"}
    page = tail.table(found, facts, 20_000, realtime=False)
    assert "| apache | 0.200 (0.200 to 0.200) | 1.000 (0.800 to 1.200) | 5.000 (4.000 to 6.000) |" in page
    assert "| p99 | 0.200 | 0.300, not reached | 0.200, **reached** |" in page
    assert "| p99.9 | 1.000 | 0.900, **reached** | 0.600, **reached** |" in page
