"""The scenes bring the traces that are written down: `python -m tests.raft.scene --rewrite` writes them anew."""

import pytest

from tests.raft.scene import FOLDER, played

SCENES = sorted(path.stem for path in FOLDER.glob("*.txt"))


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_brings_the_trace_that_is_written_down(name: str) -> None:
    text = (FOLDER / f"{name}.txt").read_text()
    assert played(text) == text


def test_a_trace_that_is_not_written_down_is_added() -> None:
    scene = "# One.\n\nnodes 1\n\nstart 1\n"
    first = played(scene)
    assert first.startswith("# One.\n\nnodes 1\n----\n\nstart 1\n----\n1 leads epoch 1\n")
    assert played(first) == first
    assert played(first.replace("leads", "follows")) == first
