"""`make crash KILLS=n SEED=s`: the long form of `test_kill.py`, with a line a round and the counts at the end."""

import argparse
import tempfile
from pathlib import Path

from tests.crash.kill import Torture


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ottla-crash-") as directory:
        torture = Torture(Path(directory), asked.seed, lambda line: print(line, flush=True))
        try:
            report = torture.run(asked.kills)
        except BaseException:
            print(f"seed {asked.seed}, after {torture.report.kills} kills:\n{torture.server.tail()}", flush=True)
            raise
        finally:
            torture.close()
    print("\n".join(report.lines()))


main()
