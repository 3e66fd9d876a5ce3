"""Every block of the README runs as it is written, and prints what the `output` block below it says.

What a test must not do is left out or turned aside, and nothing else: environments are not made and nothing is
installed (the tests have both already), `make` targets are not run, and addresses with Kafka's port become a free one.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import ottla

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
_BLOCKS = [(language, text) for language, text in _BLOCK.findall(_TEXT)]
_PYTHON = [text for language, text in _BLOCKS if language == "python"]
_SHELL = [text for language, text in _BLOCKS if language == ""]
#: What a block prints, by its text.
_OUTPUT = {text: output for (_, text), (language, output) in pairwise(_BLOCKS) if language == "output"}
_ELSEWHERE = ("make ", "python3 -m venv ", ". .venv/bin/activate", "pip install ")
#: A Spark session alone may take a minute on a busy machine.
_SECONDS_MAX = 240


@pytest.fixture(scope="module")
def node() -> Iterator[ottla.Node]:
    with ottla.Node() as found:
        found.create_topic("hello", 1)
        yield found


@pytest.fixture
def here(tmp_path: Path, node: ottla.Node) -> Iterator[Path]:
    """A directory with what a clone has and the blocks name; no cluster outlives it."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    yield tmp_path
    if (tmp_path / "ottla-cluster").exists():
        run(["ottla", "cluster", "down", "--delete"], tmp_path, node)


def run(command: list[str], here: Path, node: ottla.Node) -> str:
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "OTTLA_BOOTSTRAP_SERVERS": node.bootstrap_servers,
        "OTTLA_CONFIG": "",
        "XDG_CONFIG_HOME": str(here),
        "HOME": str(Path.home()),
    }
    done = subprocess.run(
        command, cwd=here, env=environment, capture_output=True, timeout=_SECONDS_MAX, check=False, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", range(len(_PYTHON)))
def test_a_block_of_python_runs(number: int, here: Path, node: ottla.Node) -> None:
    text = _PYTHON[number].replace("127.0.0.1:9092", node.bootstrap_servers)
    if "def test_" in text:
        (here / "test_block.py").write_text(text)
        assert "1 passed" in run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_block.py"], here, node
        )
        return
    (here / "block.py").write_text(text)
    assert run([sys.executable, "block.py"], here, node) == _OUTPUT.get(_PYTHON[number], "")


def test_the_settings_of_the_secured_cluster_are_taken() -> None:
    [text] = [text for text in _PYTHON if "SASL_SSL" in text]
    scope: dict[str, dict[str, object]] = {}
    exec(text, scope)
    from ottla.client import Producer

    with Producer(scope["settings"] | {"sasl.password": "secret"}) as producer:
        assert producer.settings.sasl_mechanism == "SCRAM-SHA-512"


@pytest.mark.parametrize("number", range(len(_SHELL)))
def test_a_block_of_the_shell_runs(number: int, here: Path, node: ottla.Node) -> None:
    lines = [line for line in _SHELL[number].splitlines() if line and not line.startswith(_ELSEWHERE)]
    printed = ""
    for line in lines:
        command, _, _ = line.partition("  #")
        if command.startswith("ottla start"):
            _starts(command.strip(), here, node)
        elif command.startswith("ottla topics create hello"):
            run(["bash", "-euo", "pipefail", "-c", f"{command} --if-not-exists"], here, node)
        elif command.startswith("ottla cluster up"):
            run(["bash", "-c", f"{command} --port 0"], here, node)
        else:
            printed += run(["bash", "-euo", "pipefail", "-c", command], here, node)
    assert _OUTPUT.get(_SHELL[number], "") in printed
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()}
    assert {each.name for each in here.iterdir()} - {"examples"} <= ignored


def _starts(command: str, here: Path, node: ottla.Node) -> None:
    """The node comes up; on a free port, because Kafka's may be taken here."""
    aside = (
        "--set listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0" if ".properties" in command else "--port 0"
    )
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    process = subprocess.Popen(
        [*command.split(), *aside.split()], cwd=here, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert "ready on 127.0.0.1:" in process.stdout.readline()
    finally:
        process.terminate()
        process.communicate(timeout=_SECONDS_MAX)


def test_commands_in_the_text_are_there() -> None:
    from ottla.cli.ottla.root import _TOOLS

    named = set(re.findall(r"`ottla ([a-z-]+)", _TEXT))
    assert named <= _TOOLS.keys()
    assert _TOOLS.keys() - named <= {"completion"}
