"""Kafka Streams 4.3.1, in its own TopologyTestDriver, says what the engine of ottla.flow must give.

Compared record by record: keys and values in bytes, timestamps, headers, errors, and the description of the topology.
OTTLA_REWRITE=1 writes Kafka Streams' answers into the scenes; OTTLA_SEEDS says how many random programs are tried.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.streams_driver import Referee
from tests.streams.digest import PATH, digest, internal, known, visible
from tests.streams.generate import program
from tests.streams.program import UNTHROTTLED, build
from tests.streams.scene import SCENES, read, run, show

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

_SEEDS = int(os.environ.get("OTTLA_SEEDS", "60"))


@pytest.fixture(scope="module")
def referee() -> Iterator[Referee]:
    with Referee() as made:
        yield made


@pytest.mark.parametrize("path", sorted(SCENES.glob("*.scene")), ids=lambda path: path.stem)
def test_kafka_streams_gives_what_the_scenes_say(referee: Referee, path: Any) -> None:
    scenes, written = read(path), []
    for scene in scenes:
        description, steps = referee.run(scene.program, scene.config, scene.steps())
        written.append(scene.text([show(scene, outputs, error is not None) for outputs, error in steps]))
        assert build(scene.program, scene.config).describe() == description, scene.title
    if os.environ.get("OTTLA_REWRITE"):
        path.write_text("\n".join(written))
    assert written == [scene.text(scene.outputs) for scene in scenes]


def test_random_programs_give_the_same_on_both(referee: Referee) -> None:
    told_by_kafka = {}
    for seed in range(_SEEDS):
        statements, steps = program(seed)
        description, expected = referee.run(statements, UNTHROTTLED, steps)
        told_by_kafka[seed] = digest(description, expected)
        assert build(statements).describe() == description, f"seed {seed}"
        given = run(statements, UNTHROTTLED, steps)
        for number, ((ours, error), (theirs, their_error)) in enumerate(zip(given, expected, strict=True)):
            told = f"seed {seed}, step {number}: {steps[number]}, {error}, {their_error}"
            assert visible(ours) == visible(theirs), told
            assert internal(ours) == internal(theirs), told
            assert (error is None) == (their_error is None), told
            if error is not None:
                break
    if os.environ.get("OTTLA_REWRITE"):
        PATH.write_text("".join(f"{seed} {told}\n" for seed, told in told_by_kafka.items()))
    compared = known()
    assert all(compared.get(seed, told) == told for seed, told in told_by_kafka.items()), (
        "make test compares with these"
    )


def test_changelogs_have_kafka_streams_form(referee: Referee) -> None:
    """Tables, aggregates, windows and sessions: a store of Kafka Streams could be restored from them."""
    statements = [
        {"id": "s", "op": "stream", "topic": "a"},
        {"id": "t", "op": "table", "topic": "b", "store": "table"},
        {"id": "g", "op": "group_by_key", "on": "s"},
        {"op": "count", "on": "g", "store": "counts"},
        {"id": "w", "op": "windowed_by", "on": "g", "windows": "time:10:5:5"},
        {"op": "reduce", "on": "w", "f": "concat", "store": "windows"},
        {"id": "x", "op": "windowed_by", "on": "g", "windows": "session:5:20"},
        {"op": "reduce", "on": "x", "f": "concat", "store": "sessions"},
        {"id": "y", "op": "group_by", "on": "t", "f": "first", "name": "grp"},
        {"op": "reduce", "on": "y", "f": "plus", "g": "minus", "store": "sums"},
    ]
    _, steps = program(0)
    steps = [{**each, "topic": "ab"[number % 2]} for number, each in enumerate(steps) if "topic" in each]
    _, expected = referee.run(statements, UNTHROTTLED, steps)
    for number, ((ours, _), (theirs, _)) in enumerate(zip(run(statements, UNTHROTTLED, steps), expected, strict=True)):
        assert ours == theirs, f"step {number}: {steps[number]}"
