"""What Kafka Streams gave for random programs, as digests: `random_programs.txt` has one a seed.

`OTTLA_REWRITE=1 OTTLA_SEEDS=200 make interop ARGS=tests/interop/test_streams_engine.py` writes them from Kafka
Streams' own answers.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.streams.scene import Raw

PATH = Path(__file__).with_name("random_programs.txt")
#: Internal topics that only a program's own tasks read: their form is each one's own (docs/internals/streams.md).
_OWN = re.compile(r"shared|SHARED|FK-JOIN|subscription|SUPPRESS|name\d+-store|Buffer")
#: The outputs of a step by topic, and its error.
Step = tuple[Mapping[str, Sequence[Raw]], object | None]


def visible(outputs: Mapping[str, Sequence[Raw]]) -> dict[str, Sequence[Raw]]:
    """What a program shows: the records of its topics."""
    return {topic: records for topic, records in outputs.items() if not topic.startswith("app-")}


def internal(outputs: Mapping[str, Sequence[Raw]]) -> dict[str, Sequence[Raw]]:
    """Changelogs and repartition topics."""
    return {topic: records for topic, records in outputs.items() if topic.startswith("app-") and not _OWN.search(topic)}


def digest(description: str, steps: Iterable[Step]) -> str:
    """Of the topology's description and everything that was given, up to the first error."""
    found = hashlib.sha256(description.encode())
    for outputs, error in steps:
        for part in (visible(outputs), internal(outputs)):
            for topic in sorted(part):
                if part[topic]:
                    found.update(repr((topic, [tuple(each) for each in part[topic]])).encode())
        found.update(b"|" if error is None else b"!")
        if error is not None:
            break
    return found.hexdigest()[:12]


def known() -> dict[int, str]:
    """Seed to digest."""
    return {int(seed): told for seed, told in (line.split() for line in PATH.read_text().splitlines())}
