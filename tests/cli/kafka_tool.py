"""Run one of Kafka's tools as its console script does, in this process."""

import io
import signal
import sys
import tomllib
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from unittest import mock

import pytest

from tests.cli.tool import Said

_PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
SCRIPTS: dict[str, str] = tomllib.loads(_PYPROJECT.read_text())["project"]["scripts"]


def kafka(tool: str, *arguments: str, typed: str | bytes = "") -> Said:
    """What the tool wrote, and its exit code."""
    module, _, function = SCRIPTS[tool].partition(":")
    stdin = io.TextIOWrapper(io.BytesIO(typed.encode() if isinstance(typed, str) else typed))
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with (
        mock.patch.object(sys, "argv", [tool, *arguments]),
        mock.patch.object(sys, "stdin", stdin),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as left,
    ):
        getattr(import_module(module), function)()
    for number, handler in handlers.items():  # the verifiable clients take them over
        signal.signal(number, handler)
    code = left.value.code
    assert isinstance(code, int)
    return Said(code, _written(out), _written(err))


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    content = stream.buffer
    assert isinstance(content, io.BytesIO)
    return content.getvalue().decode()
