"""Every scene gives on our engine what stands in its file. Kafka Streams is asked the same in tests/interop."""

import os
from pathlib import Path

import pytest

from tests.streams.scene import SCENES, play, read

_FILES = sorted(SCENES.glob("*.scene"))


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_scenes_give_what_is_written_down(path: Path) -> None:
    scenes = read(path)
    assert scenes
    played = [play(scene) for scene in scenes]
    if os.environ.get("OTTLA_REWRITE"):
        path.write_text("\n".join(scene.text(outputs) for scene, outputs in zip(scenes, played, strict=True)))
    for scene, outputs in zip(scenes, played, strict=True):
        assert scene.text(outputs) == scene.text(scene.outputs), scene.title
