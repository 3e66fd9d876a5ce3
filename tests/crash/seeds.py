"""`make sim SEEDS=n`: the scenes of the simulated disk, with as many seeds as asked for; evidence.json counts them.

The tests run the same scenes with few seeds; this is for many. Each line says what was run, and how often. What fails
is raised with its seed; a seed that ever failed stays in the tests.
"""

import argparse
import time
from collections.abc import Callable

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.broker.test_metadata_log import test_a_crash_at_any_effect_leaves_a_log_that_opens as metadata_crashes
from tests.broker.test_metadata_log import test_what_was_answered_survives_a_power_failure as metadata_power_failures
from tests.evidence import note
from tests.log.test_crash import LogMachine
from tests.sim.history import run_history
from tests.sim.wide import run_wide_history

_STEPS = 30


def node_killed(seed: int) -> None:
    """A node whose process dies."""
    run_history(seed, power=False)


def node_without_power(seed: int) -> None:
    """A node with flush.messages=1 whose machine loses its power."""
    run_history(seed, power=True)


def two_directories_killed(seed: int) -> None:
    """A node with two log directories whose process dies."""
    run_wide_history(seed, power=False)


def two_directories_without_power(seed: int) -> None:
    """The same with flush.messages=1, and the machine loses its power."""
    run_wide_history(seed, power=True)


def _histories(_: int, count: int) -> None:
    run_state_machine_as_test(
        LogMachine,
        settings=settings(
            max_examples=count,
            stateful_step_count=_STEPS,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def _each(scene: Callable[[int], None]) -> Callable[[int, int], None]:
    def run(first: int, count: int) -> None:
        for seed in range(first, first + count):
            try:
                scene(seed)
            except BaseException:
                print(f"seed {seed} of {getattr(scene, '__name__', scene)}", flush=True)
                raise

    return run


_SCENES: dict[str, Callable[[int, int], None]] = {
    f"a store and its log, up to {_STEPS} steps, crashes before any effect and in recovery": _histories,
    "the metadata log, crashes before any effect": _each(metadata_crashes),
    "the metadata log, power failures": _each(metadata_power_failures),
    "a whole node, its process killed in four lives": _each(node_killed),
    "a whole node with flush.messages=1, power failures in four lives": _each(node_without_power),
    "two log directories: trimmed, grown, moved; its process killed": _each(two_directories_killed),
    "the same with flush.messages=1, power failures": _each(two_directories_without_power),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.seeds", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first seed of the scenes that have one")
    asked = parser.parse_args()
    for name, scene in _SCENES.items():
        began = time.monotonic()
        scene(asked.first, asked.seeds)
        note(f"make sim: {name}", {"histories": asked.seeds})
        print(f"{asked.seeds} histories in {time.monotonic() - began:.0f} s: {name}", flush=True)


if __name__ == "__main__":
    main()
