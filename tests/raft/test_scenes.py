"""The scenes bring the traces that are written down: `python -m tests.raft.scene --rewrite` writes them anew."""

import pytest

from tests.play import names, played
from tests.raft.scene import FOLDER, Scene


@pytest.mark.parametrize("name", names(FOLDER))
def test_a_scene_brings_the_trace_that_is_written_down(name: str) -> None:
    text = (FOLDER / f"{name}.txt").read_text()
    assert played(Scene, text) == text


def test_a_trace_that_is_not_written_down_is_added() -> None:
    scene = "# One.\n\nnodes 1\n\nstart 1\n"
    first = played(Scene, scene)
    assert first.startswith("# One.\n\nnodes 1\n----\n\nstart 1\n----\n1 leads epoch 1\n")
    assert played(Scene, first) == first
    assert played(Scene, first.replace("leads", "follows")) == first
