"""Many kills in rounds. A round has a process, a directory and a seed of its own.

Rules:
- After every round its counts and those of all rounds so far are printed, and kept as a line of the results file.
- The directory of a round that fails is kept, and that of one with a member that nobody could explain. The first ends
  the run, the second lets it go on and makes its end a failure.
"""

import argparse
import faulthandler
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from tests.crash.kill import Torture
from tests.crash.report import Report


def run_round(seed: str, kills: int, directory: str) -> Report:
    """One round, in a process of its own: what librdkafka logs goes to a file of its directory."""
    log = os.open(Path(directory) / "clients.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, sys.stderr.fileno())
    # A node that is sent SIGABRT says where its threads are.
    os.environ["PYTHONFAULTHANDLER"] = "1"
    faulthandler.enable()
    torture = Torture(Path(directory), seed)
    try:
        return torture.run(kills)
    except BaseException as error:
        error.add_note(f"seed {seed}, after {torture.report.kills} kills:\n{torture.server.tail()}")
        raise
    finally:
        torture.close()


class Run:
    """All rounds of one seed, and the file of their results."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked = asked
        self.total = Report()
        #: The rounds of this process alone.
        self.fresh = Report()
        self.results = Path(asked.results)
        self._done: set[int] = set()
        self._directories: dict[Future[Report], tuple[int, str]] = {}
        if asked.resume and self.results.exists():
            for each in map(json.loads, self.results.read_text().splitlines()):
                self._take(each)
        else:
            self.results.parent.mkdir(parents=True, exist_ok=True)
            self.results.write_text("")

    def _take(self, line: dict[str, Any]) -> None:
        assert line["seed"] == self.asked.seed, f"{self.results} is of seed {line['seed']}"
        self._done.add(line["round"])
        self.total.add(Report.of(line["report"]))

    def run(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(self.asked.jobs, mp_context=spawn, max_tasks_per_child=1) as pool:
            number = planned = 0
            running: set[Future[Report]] = set()
            failure: Exception | None = None
            while True:
                while (
                    failure is None and len(running) < self.asked.jobs and self.total.kills + planned < self.asked.kills
                ):
                    while number in self._done:
                        number += 1
                    kills = min(self.asked.round, self.asked.kills - self.total.kills - planned)
                    directory = tempfile.mkdtemp(prefix=f"ottla-crash-{self.asked.seed}-{number}-")
                    future = pool.submit(run_round, f"{self.asked.seed}-{number}", kills, directory)
                    running.add(future)
                    self._directories[future] = (number, directory)
                    number, planned = number + 1, planned + kills
                if not running:
                    break
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    try:
                        self._end(future)
                    except Exception as error:
                        # What runs beside it comes to its end, and counts.
                        failure = failure or error
                planned = self.asked.round * len(running)
        if failure is not None:
            raise failure

    def _end(self, future: Future[Report]) -> None:
        number, directory = self._directories.pop(future)
        try:
            report = future.result()
        except BaseException:
            print(f"round {number} failed; it is kept in {directory}", flush=True)
            raise
        line = {
            "seed": self.asked.seed,
            "round": number,
            "ended": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "load": os.getloadavg()[0],
            "report": report.as_dict(),
        }
        with self.results.open("a") as file:
            file.write(json.dumps(line) + "\n")
        self._take(line)
        self.fresh.add(report)
        print(f"--- round {number}, at {line['ended']}, load {line['load']:.1f}\n" + "\n".join(report.lines()))
        print("=== all rounds\n" + "\n".join(self.total.lines()), flush=True)
        if report.unexplained:
            print(f"a member that nobody could explain: {directory}/members.txt", flush=True)
        else:
            shutil.rmtree(directory)
