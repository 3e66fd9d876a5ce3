"""Which way better is."""

from pathlib import Path

from bench.report import Run

SIZE = {"seconds": 1.0}


def run_of(figure: str, apache: list[float], ottla: list[float]) -> Run:
    run = Run({"work": "A work"}, SIZE)
    for value in apache:
        run.note("work", "apache", {figure: value})
    for value in ottla:
        run.note("work", "ottla", {figure: value})
    return run


def test_a_rate_above_one_is_better() -> None:
    (row,) = run_of("records_per_s", [100.0], [150.0]).rows()
    assert (row.ratio, row.better) == (1.5, 1.5)


def test_a_latency_below_one_is_better() -> None:
    (row,) = run_of("p99_ms", [10.0], [2.5]).rows()
    assert (row.ratio, row.better) == (0.25, 4.0)


def test_a_figure_is_the_median_of_its_rounds() -> None:
    (row,) = run_of("records_per_s", [1.0, 900.0, 100.0], [50.0, 1.0, 7000.0]).rows()
    assert (row.apache, row.ottla, row.ratio) == (100.0, 50.0, 0.5)


def test_memory_is_told_in_mebibytes() -> None:
    (row,) = run_of("memory_bytes", [float(1 << 30)], [float(1 << 26)]).rows()
    assert (row.apache, row.ottla, row.unit) == (1024.0, 64.0, "MiB")


def test_a_work_that_one_system_did_not_finish_has_no_row() -> None:
    assert run_of("records_per_s", [100.0], []).rows() == []


def test_what_broke_stands_in_the_table(tmp_path: Path) -> None:
    run = run_of("records_per_s", [100.0], [])
    run.failures.append("round 1, ottla, work: 3 of 4 records sent")
    assert "3 of 4 records sent" in run.write(tmp_path)


def test_only_a_better_ratio_is_bold(tmp_path: Path) -> None:
    run = Run({"fast": "Fast", "slow": "Slow"}, SIZE)
    for work, ottla in (("fast", 200.0), ("slow", 50.0)):
        run.note(work, "apache", {"records_per_s": 100.0})
        run.note(work, "ottla", {"records_per_s": ottla})
    text = run.write(tmp_path)
    assert "| **2.00** |" in text
    assert "| 0.50 |" in text
