"""`make crash KILLS=n SEED=s`: the long form of `test_kill.py`, in rounds whose seeds are made of SEED and a number."""

import argparse
import sys

from tests.crash.round import Run
from tests.evidence import note


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--round", type=int, default=250, help="kills in a round")
    parser.add_argument("--jobs", type=int, default=1, help="rounds side by side")
    parser.add_argument("--results", default=".cache/crash.jsonl", help="a line of JSON for each round")
    parser.add_argument("--resume", action="store_true", help="go on behind the rounds in the results file")
    run = Run(parser.parse_args())
    try:
        run.run()
    finally:
        if run.fresh.kills:
            note("make crash", run.fresh.counts())
    sys.exit(bool(run.total.unexplained))


if __name__ == "__main__":
    main()
