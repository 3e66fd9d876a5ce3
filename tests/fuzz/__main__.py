"""Feeds decoders until each has had so many inputs. Goes on where a run with the same seed ended.

python -m tests.fuzz --inputs 1000000 [--decoder TEXT] [--seed N]: TEXT is a part of a decoder's name.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from time import process_time

from tests.fuzz.decoders import all_decoders
from tests.fuzz.feed import BLOCK_INPUTS, Decoder, Failure, run_block

_SAVE_EVERY = 40


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Feed decoders with damaged bytes.")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="for each decoder")
    parser.add_argument("--decoder", default="", help="a part of the names of those to feed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--state", type=Path, default=Path("build/fuzz"), help="where it is kept how far each is")
    given = parser.parse_args()
    chosen = [each for name, each in all_decoders().items() if given.decoder.lower() in name.lower()]
    if not chosen:
        parser.error(f"no decoder has {given.decoder!r} in its name")
    given.state.mkdir(parents=True, exist_ok=True)
    kept = given.state / f"seed-{given.seed}.json"
    done: dict[str, int] = json.loads(kept.read_text()) if kept.exists() else {}
    began, before = process_time(), sum(done.values())
    failures = [failure for each in chosen if (failure := _feed(each, given.inputs, given.seed, done, kept))]
    inputs = (sum(done.values()) - before) * BLOCK_INPUTS
    seconds = process_time() - began
    print(f"{len(chosen)} decoders, {inputs:,} inputs, {seconds:.0f} s of CPU, {len(failures)} failures")
    for failure in failures:
        print(failure)
    return 1 if failures else 0


def _feed(decoder: Decoder, inputs: int, seed: int, done: dict[str, int], kept: Path) -> Failure | None:
    """Runs the blocks that are missing. A block that fails is not done: the next run begins with it."""
    failure = None
    first, end = done.get(decoder.name, 0), -(-inputs // BLOCK_INPUTS)
    for number in range(first, end):
        failure = run_block(decoder, seed, number, timed=True)
        if failure is not None:
            break
        done[decoder.name] = number + 1
        if number % _SAVE_EVERY == _SAVE_EVERY - 1:
            _save(done, kept)
    _save(done, kept)
    return failure


def _save(done: dict[str, int], kept: Path) -> None:
    """Whole or not at all, if the run is stopped meanwhile."""
    beside = kept.with_suffix(".new")
    beside.write_text(json.dumps(done))
    beside.replace(kept)


if __name__ == "__main__":
    raise SystemExit(main())
