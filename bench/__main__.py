"""`python -m bench`: rounds of all works on both systems, then the table and the plot.

Exit code 1 if something failed (the other works go on), never because of a figure.
"""

import argparse
import compileall
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from subprocess import TimeoutExpired

import ottla
from bench import RESULTS, SCRATCH, bare, work
from bench.report import FIGURES, Run, number
from bench.system import SYSTEMS, System, settle
from bench.work import Size, Work

ROUNDS = 3
#: A round that would exceed this time is omitted, unless the number of rounds is given.
BUDGET_S = 13 * 60
#: With a higher load average at the start, other work on the machine distorts the figures.
QUIET_LOAD = 0.5


def main() -> int:
    """Run the selected works, and write the results."""
    options = _options()
    size = work.QUICK if options.quick else work.FULL
    works = [one for one in work.WORKS if not options.only or one.name in options.only]
    _prepare(options.quick)
    run = Run(
        {one.name: one.title.format(partitions=size.partitions) for one in works}, asdict(size), quick=options.quick
    )
    if run.facts["load_average"] > QUIET_LOAD and not options.quick:
        _say(f"bench: the load average is {run.facts['load_average']}; figures want a machine that does nothing else")
    began = time.monotonic()
    rounds_s: list[float] = []
    for number_of_round in range(1, (options.rounds or (1 if options.quick else ROUNDS)) + 1):
        took_s = time.monotonic() - began
        if rounds_s and not options.rounds and took_s + min(rounds_s) > BUDGET_S:
            _say(f"bench: {took_s:.0f} s are over; another round would take too long (--rounds has it all the same)")
            break
        # The next round begins with the other system, so that other load affects both.
        names = (*SYSTEMS, bare.BARE)
        for name in names if number_of_round % 2 else names[::-1]:
            done = works if name != bare.BARE else [one for one in works if one.name in bare.WORKS]
            if done:
                _pass(run, number_of_round, name, done, size, options.quick)
        rounds_s.append(time.monotonic() - began - took_s)
    run.facts["took_s"] = round(time.monotonic() - began, 1)
    whole = works == list(work.WORKS) and not options.quick
    directory = options.out or (RESULTS if whole else SCRATCH)
    print(run.write(directory))
    _say(f"bench: written to {directory}, {run.facts['took_s']:.0f} s")
    return 1 if run.failures else 0


def _pass(run: Run, number_of_round: int, name: str, works: Sequence[Work], size: Size, quick: bool) -> None:
    """Run all works on one system, from an empty directory. Nothing else runs meanwhile."""
    settle()
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=SCRATCH, ignore_cleanup_errors=True) as directory:
        system = bare.system(name, Path(directory), quick)
        try:
            system.start()
            if any(one.warm for one in works):
                work.warm_up(system, size)
            for one in works:
                if system.alive() and (number_of_round == 1 or not one.once):
                    _work(run, number_of_round, name, system, one, size)
            if not system.alive():
                run.failures.append(f"round {number_of_round}, {name}: the server ended\n{system.server.tail()}")
        except (OSError, RuntimeError, AssertionError, TimeoutExpired) as error:
            run.failures.append(f"round {number_of_round}, {name}: {error}")
            _say(f"bench: {run.failures[-1]}")
        finally:
            system.stop()


def _work(run: Run, number_of_round: int, name: str, system: System, one: Work, size: Size) -> None:
    """Run one work. A failure is recorded, and the other works go on."""
    began = time.monotonic()
    try:
        figures = one.run(system, size)
    except (OSError, RuntimeError, AssertionError, LookupError, ValueError, TimeoutExpired) as error:
        run.failures.append(f"round {number_of_round}, {name}, {one.name}: {type(error).__name__}: {error}")
        _say(f"bench: {run.failures[-1]}\n{system.server.tail()}")
        return
    run.note(one.name, name, figures)
    told = [f"{number(figures[key] * FIGURES[key].factor)} {FIGURES[key].unit}" for key in FIGURES if key in figures]
    took_s = time.monotonic() - began
    _say(f"round {number_of_round}  {name:6}  {one.name:18}  {took_s:5.1f} s  {'; '.join(told)}")


def _prepare(quick: bool) -> None:
    """Prepare once, before the measurements."""
    SCRATCH.mkdir(parents=True, exist_ok=True)
    # SIGTERM ends the bench as Ctrl-C does, so that the server is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # Our node starts from compiled modules, like an installed one.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if not quick:
        compileall.compile_dir(str(Path(ottla.__file__).parent), quiet=2)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    names = [one.name for one in work.WORKS]
    parser = argparse.ArgumentParser(
        prog="bench", description="Ottla beside Apache Kafka 4.3.1.", epilog=f"Works: {', '.join(names)}."
    )
    parser.add_argument("--quick", action="store_true", help="run everything once with tiny counts (for CI)")
    parser.add_argument("--rounds", type=int, default=0, help=f"rounds of both systems ({ROUNDS}; quick: 1)")
    parser.add_argument(
        "--only", action="append", choices=names, metavar="WORK", help="run only this work (repeatable)"
    )
    parser.add_argument("--out", type=Path, help="the output directory (all works: bench/results; else build/bench)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
