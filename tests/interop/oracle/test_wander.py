"""Histories drawn by a seed, and those in which a difference was once found: Apache Kafka and we answer the same."""

from pathlib import Path

import pytest

from tests.interop.oracle.wander.catalogue import FAMILIES, history
from tests.interop.oracle.wander.history import Step, load
from tests.interop.oracle.wander.shrink import again, shrink
from tests.interop.oracle.wander.walk import Walk
from tests.interop.server import Server

FOUND = sorted((Path(__file__).parent / "wander" / "found").glob("*.json"))
#: What these are answered depends on nobody's speed.
STEADY = [name for name in FAMILIES if name in ("record", "transaction", "admin")]
SEEDS = (1, 2)


def same(reference: Server, subject: Server, steps: list[Step]) -> None:
    """No difference; one that does not show itself again was none."""
    walk = Walk(reference, subject)
    found = walk.run(steps)
    if found is None or not again(steps, found, walk.run):
        return
    short, found = shrink(steps, found, walk.run)
    said = "\n".join(map(str, short))
    assert not found.fields, f"{said}\n{found.what}: (where, Apache, we) {found.fields}"


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_what_once_differed_is_the_same(reference: Server, subject: Server, path: Path) -> None:
    same(reference, subject, load(path.read_text()))


@pytest.mark.parametrize("family", STEADY)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_drawn_by_a_seed_is_answered_the_same(
    reference: Server, subject: Server, family: str, seed: int
) -> None:
    same(reference, subject, history(family, seed))
