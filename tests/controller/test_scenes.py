"""The scenes of the controller bring the traces that are written down."""

import pytest

from tests.controller.played import FOLDER, Scene
from tests.play import names, played


@pytest.mark.parametrize("name", names(FOLDER))
def test_a_scene_brings_the_trace_that_is_written_down(name: str) -> None:
    text = (FOLDER / f"{name}.txt").read_text()
    assert played(Scene, text) == text
