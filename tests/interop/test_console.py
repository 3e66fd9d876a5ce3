"""Apache's own tools against the node answer what the scenes of tests/cli/console say, where our tools must too."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.console_scene import play, scenes
from tests.interop.apache_tool import ApacheTools
from tests.interop.server import Server

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def tools() -> Iterator[ApacheTools]:
    with ApacheTools() as one:
        yield one


@pytest.mark.parametrize("path", scenes(), ids=lambda path: path.stem)
def test_apaches_tools_answer_as_the_scene_says(path: Path, server: Server, tools: ApacheTools, tmp_path: Path) -> None:
    play(path, tools, server.bootstrap, f"s{uuid.uuid4().hex[:8]}", tmp_path)
