"""The bench of the clients: its table, and whether all of it runs. Its figures are not looked at."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.client import ROWS, report
from tests.tidy.source import ROOT

NOTED = {
    "processor": "p",
    "cores": 2,
    "memory_gib": 1,
    "kernel": "k",
    "filesystem": "f",
    "load_average": 0.0,
    "versions": {"Python": "3"},
    "commit": "c",
    "date": "d",
    "took_s": 60.0,
}


def figures(rate: float) -> dict[str, float]:
    return {"records": rate, "seconds": 1.0, "cpu_seconds": 1.0, "read_bytes": 1 << 30, "memory_bytes": 1 << 20}


def test_goals_are_of_the_medians_and_those_that_are_short_are_said() -> None:
    names = {f"{run.client}_{run.work}" for row in ROWS for run in row.runs} | {"ottla_memory"}
    found = {name: [figures(100.0), figures(300.0), figures(200.0)] for name in names}
    found["ottla_produce"] = [figures(9e9), figures(1.0), figures(500.0)]
    text = report(found, NOTED, quick=False)
    assert "| produce 100 B records one at a time, confluent produce | 1x | 2.50x | reached |" in text
    assert "| produce 100 B records one at a time, aiokafka produce | 3x | 2.50x | **short** |" in text
    assert "200 (100 to 300)" in text
    assert "1,024 MiB of values were read as columns in 1.00 MiB" in text or "in 1 MiB" in text


@pytest.mark.interop
@pytest.mark.timeout(240)
def test_every_work_of_every_client_runs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.client", "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    rounds = json.loads((tmp_path / "client.json").read_text())["rounds"]
    assert set(rounds) == {f"{run.client}_{run.work}" for row in ROWS for run in row.runs} | {"ottla_memory"}
    assert all(one["records"] > 0 for each in rounds.values() for one in each)
    assert "From a quick run" in (tmp_path / "client.md").read_text()
