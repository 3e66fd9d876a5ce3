"""Wander: `python -m tests.interop.oracle.wander --family record --seeds 1-100`."""

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.interop import server as servers
from tests.interop.oracle.wander.catalogue import FAMILIES, LENGTH, SETTINGS, history
from tests.interop.oracle.wander.history import Step, dump, load
from tests.interop.oracle.wander.shrink import again, is_chance, shrink
from tests.interop.oracle.wander.walk import Difference, Walk
from tests.interop.server import Server


def main() -> int:
    said = arguments()
    with tempfile.TemporaryDirectory(prefix="wander-") as directory:
        reference = Server(servers.apache(), Path(directory) / "reference", SETTINGS, port=said.reference)
        subject = Server(servers.kind(said.subject), Path(directory) / "subject", SETTINGS)
        try:
            if not reference.port:
                reference.start()
            subject.start()
            return wander(Walk(reference, subject), said)
        finally:
            reference.kill()
            subject.kill()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="wander", description=__doc__)
    parser.add_argument("--family", default=",".join(FAMILIES), help="families, with commas between")
    parser.add_argument("--seeds", default="1-20", help="first-last")
    parser.add_argument("--length", type=int, default=LENGTH, help="steps of a history")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no history after so long")
    parser.add_argument("--kinds", type=int, default=20, help="stop after so many kinds of differences")
    parser.add_argument("--subject", default="ottla", help="ottla, or apache to compare Apache with itself")
    parser.add_argument("--reference", type=int, default=0, help="the port of an Apache that runs already")
    parser.add_argument("--play", type=Path, help="play this file of steps instead")
    parser.add_argument("--keep", type=Path, help="write each short history with a difference into this directory")
    parser.add_argument("--words", action="store_true", help="list the texts that differ")
    parser.add_argument("--no-shrink", action="store_true", help="show a difference with its whole history")
    return parser.parse_args()


def wander(walk: Walk, said: argparse.Namespace) -> int:
    """Run the histories, show what differs; 1 if anything did."""
    begun = time.monotonic()
    kinds: Counter[tuple[str, str, str]] = Counter()
    ran: Counter[str] = Counter()
    for name, number, steps in chosen(said):
        if time.monotonic() - begun > said.seconds or len(kinds) >= said.kinds:
            break
        found = walk.run(steps)
        ran[name] += 1
        if found is None:
            continue
        lasting, short = again(steps, found, walk.run), steps[: found.step + 1]
        if lasting and kinds[found.kind]:
            kinds[found.kind] += 1
            continue
        if lasting and not said.no_shrink:
            short, found = shrink(steps, found, walk.run)
        chance = is_chance(short, found, Walk(walk.reference, walk.reference).run)
        if chance or not lasting:
            how = "as Apache beside itself" if chance else "not each time, and Apache beside itself never"
            print(f"== {name} {number}: {how}: {found.kind} {found.fields[0]}", flush=True)
            ran["by Apache's chance" if chance else "not each time"] += 1
            continue
        kinds[found.kind] += 1
        print(show(f"{name} {number}", short, found), flush=True)
        if said.keep:
            (said.keep / f"{name}-{number}.json").write_text(dump(short))
    took_s = time.monotonic() - begun
    print(f"{dict(ran)}; {walk.steps} steps in {took_s:.0f} s, {walk.steps / max(took_s, 0.001):.0f} a second")
    if walk.failures:
        print(f"  ended where Apache failed: {walk.failures}")
    for kind, times in kinds.most_common():
        print(f"  {times} x {kind}")
    if said.words:
        for (what, left, right), times in sorted(walk.words.items()):
            print(f"  {times} x {what}\n      Apache: {left}\n      ours:   {right}")
    return 1 if kinds or ran["not each time"] else 0


def chosen(said: argparse.Namespace) -> list[tuple[str, int, list[Step]]]:
    if said.play:
        return [(said.play.stem, 0, load(said.play.read_text()))]
    first, _, last = said.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    return [(name, seed, history(name, seed, said.length)) for seed in seeds for name in said.family.split(",")]


def show(name: str, steps: list[Step], found: Difference) -> str:
    lines = [f"== {name}: {len(steps)} steps"]
    lines += [f"  {number}. {step}" for number, step in enumerate(steps)]
    lines.append(f"  at {found.step}, {found.what}:")
    lines += [f"    {path}: Apache {left!r}, we {right!r}" for path, left, right in found.fields[:12]]
    lines += [f"    Apache: {found.expected}", f"    we:     {found.got}"]
    return "\n".join(line[:2500] for line in lines)


if __name__ == "__main__":
    sys.exit(main())
