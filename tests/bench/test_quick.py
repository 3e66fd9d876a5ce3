"""The whole bench with tiny counts: does all of it run, against both systems? Its figures are not looked at."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.work import WORKS
from tests.tidy.source import ROOT

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]
TIMEOUT_S = 300
STOP_TIMEOUT_S = 60


def test_every_work_of_the_bench_runs_on_both_systems(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "--quick", "--out", str(tmp_path)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            _, said = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            # It stops the server it has started, and a test that is killed would leave one behind.
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=STOP_TIMEOUT_S)
            pytest.fail(f"not done after {TIMEOUT_S} s:\n{said}")
    assert process.returncode == 0, said

    run = json.loads((tmp_path / "beside-kafka.json").read_text())
    assert run["failures"] == []
    assert {row["work"] for row in run["medians"]} == {work.name for work in WORKS}
    assert all(row["apache"] > 0 and row["ottla"] > 0 for row in run["medians"])
    assert "Ottla / Apache" in (tmp_path / "beside-kafka.md").read_text()
    assert (tmp_path / "beside-kafka.png").read_bytes().startswith(b"\x89PNG")


def test_the_bench_of_scale_runs(tmp_path: Path) -> None:
    numbers = ["--partitions", "20", "--connections", "5", "--requests", "50", "--log-gib", "0.02"]
    command = [sys.executable, "-m", "bench.scale", "--ours", *numbers, "--out", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line for line in (tmp_path / "scale.md").read_text().splitlines() if line.startswith("| ")]
    assert len(rows) > 10
