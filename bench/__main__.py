"""`python -m bench`: rounds of all works on both systems, then the tables."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from bench import report, system, work
from bench.system import SYSTEMS

ROOT = Path(__file__).resolve().parent.parent
TITLES = {
    "cold-start": "cold start, empty directory, to the first acknowledged record",
    "memory-idle": "memory, idle",
    "memory-loaded": "memory, largest under load",
    **{one.name: one.title for one in work.WORKS},
}


def main() -> int:
    """Run the rounds and write the tables."""
    options = _options()
    size = work.QUICK if options.quick else work.FULL
    works = [one for one in work.WORKS if not options.only or one.name in options.only]
    samples: report.Samples = {}
    for number in range(options.rounds or (1 if options.quick else 3)):
        order = SYSTEMS if number % 2 == 0 else SYSTEMS[::-1]
        for name in order:
            _round(number + 1, name, works, size, samples)
    results = ROOT / ("build/bench" if options.quick else "bench/results")
    print(report.write(samples, TITLES, results))
    return 0


def _round(number: int, name: str, works: list[work.Work], size: work.Size, samples: report.Samples) -> None:
    with tempfile.TemporaryDirectory(prefix=f"bench-{name}-", ignore_cleanup_errors=True) as directory:
        running = system.start(name, Path(directory))
        try:
            _note(samples, "cold-start", name, {"cold_start_ms": running.cold_start_ms})
            _note(samples, "memory-idle", name, {"idle_bytes": running.idle_bytes})
            with running.watch() as watch:
                for one in works:
                    began = time.monotonic()
                    figures = one.run(running, size)
                    _note(samples, one.name, name, figures)
                    told = ", ".join(f"{key} {value:,.1f}" for key, value in figures.items() if key in report.FIGURES)
                    _say(f"round {number} {name:7} {one.name:20} {told} ({time.monotonic() - began:.0f} s)")
            _note(samples, "memory-loaded", name, {"peak_bytes": watch.peak_bytes})
        finally:
            running.stop()


def _note(samples: report.Samples, work_name: str, name: str, figures: dict[str, float]) -> None:
    for figure, value in figures.items():
        by_system = samples.setdefault(work_name, {}).setdefault(figure, {each: [] for each in SYSTEMS})
        by_system[name].append(value)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description="Ottla beside Apache Kafka 4.3.1.")
    parser.add_argument("--quick", action="store_true", help="a little of everything: does it run? (CI)")
    parser.add_argument("--rounds", type=int, default=0, help="rounds of both systems (default 3, quick 1)")
    parser.add_argument("--only", action="append", choices=[one.name for one in work.WORKS], help="only this work")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
