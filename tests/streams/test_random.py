"""Random programs give what Kafka Streams gave for them: every operator, late records, tombstones, null keys."""

from __future__ import annotations

import pytest

from tests.streams.digest import digest, known
from tests.streams.generate import program
from tests.streams.program import UNTHROTTLED, build
from tests.streams.scene import run

KNOWN = known()


@pytest.mark.parametrize("first", range(0, len(KNOWN), 20))
def test_a_random_program_gives_what_kafka_streams_gave(first: int) -> None:
    for seed in range(first, first + 20):
        statements, steps = program(seed)
        assert digest(build(statements).describe(), run(statements, UNTHROTTLED, steps)) == KNOWN[seed], f"seed {seed}"
