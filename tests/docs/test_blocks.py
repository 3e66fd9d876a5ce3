"""Every block of the guides runs as it is written, in the order of its page, with a node of its own.

The language of a block says what becomes of it:

- `python`: run in the page's namespace; those that define tests are files that pytest runs.
- `bash`: run in the page's directory, with the tools of this environment. A command that starts a node is started on
  a free port, waited for, and stopped; one that runs a stream program goes on until the end of the page.
- `output`: what the block before it printed: all of it after `python`, some of its lines, in order, after `bash`.
- `console`: commands of others (pip, docker, java), which are not run; none of ours may stand there.
- Any other language is shown only; with a title (`csv title="orders.csv"`) it is written to the file of that name.

Kafka's port becomes the node's, and nothing else is changed.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import ottla
from ottla.cli.ottla.root import ottla as ottla_tool
from ottla.settings.server.unserved import STANDARD_AUTHORIZER
from tests.docs.program import runs

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_BLOCK = re.compile(r"^```(\w*)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_GUIDES = sorted(
    path
    for path in (*DOCS.glob("*.md"), *DOCS.glob("how-to/*.md"), *DOCS.glob("coming-from/*.md"))
    if path.name not in ("ARCHITECTURE.md", "RELIABILITY.md")
)
#: A Spark session takes half a minute on a busy machine, and Java.
_LONG = {"spark.md", "streams.md"}
#: A day in the life of a cluster of processes takes a minute and a half at rest, so it runs with `make interop`.
_WITH_OTHERS = {"OPERATIONS.md"}
_OF_OTHERS = (
    "pip ",
    "docker ",
    "kubectl ",
    "systemctl ",
    "sudo ",
    "java ",
    "python3 -m venv",
    ". .venv",
    "make ",
    "git ",
)
_ADDRESS = "127.0.0.1:9092"
#: The node of a page that is about nodes with these settings.
_SETTINGS = {
    "security.md": {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"},
}
#: One block may start several nodes and tools one after the other, on a busy machine.
_SECONDS_MAX = 240


def _blocks(page: Path) -> list[tuple[str, str, str]]:
    return [(language, title, text) for language, title, text in _BLOCK.findall(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", sorted(DOCS.glob("**/*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_commands_in_the_text_are_there(page: Path) -> None:
    context = click.Context(ottla_tool)
    for words in re.findall(r"`ottla ([a-z][a-z-]*(?: [a-z][a-z-]+)?)", page.read_text(encoding="utf-8")):
        name, _, second = words.partition(" ")
        command = ottla_tool.get_command(context, name)
        assert command is not None, words
        if second and isinstance(command, click.Group):
            assert command.get_command(context, second) is not None, words


def _environment(node: ottla.Node, here: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")}
    return inherited | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "OTTLA_BOOTSTRAP_SERVERS": node.bootstrap_servers,
        "XDG_CONFIG_HOME": str(here),
        "COLUMNS": "120",
        "TZ": "UTC",
    }


def _marks(name: str) -> list[pytest.MarkDecorator]:
    timeout = pytest.mark.timeout(900 if name in _LONG | _WITH_OTHERS else 300)
    return [timeout] + [pytest.mark.long] * (name in _LONG) + [pytest.mark.interop] * (name in _WITH_OTHERS)


class Page:
    """A page as its reader goes through it: a directory, a namespace, and what was printed last."""

    def __init__(self, path: Path, here: Path, node: ottla.Node) -> None:
        self.path = path
        self.here = here
        self.node = node
        self.scope: dict[str, object] = {"__name__": "page"}
        self.printed = ""
        self.printed_by = ""
        self.running: subprocess.Popen[str] | None = None

    def close(self) -> None:
        """The stream program ends in order."""
        if self.running is not None:
            self.running.terminate()
            assert self.running.wait(_SECONDS_MAX) == 0

    def run(self, language: str, title: str, text: str) -> None:
        text = text.replace(_ADDRESS, self.node.bootstrap_servers)
        if language in ("python", "bash"):
            self.printed_by = language
        if title:
            (self.here / title).write_text(text)
        elif language == "python":
            self.printed = "" if "def test_" in text else self._python(text)
        elif language == "bash":
            self.printed = self._bash(text)
        elif language == "output":
            self._expect(text)
        elif language == "console":
            for line in text.splitlines():
                assert not line or line.startswith((*_OF_OTHERS, "#", " ")), f"{line!r} could run: make the block bash"

    def _python(self, text: str) -> str:
        printed = io.StringIO()
        with contextlib.chdir(self.here), contextlib.redirect_stdout(printed):
            exec(compile(text, str(self.path), "exec"), self.scope)
        return printed.getvalue()

    def _bash(self, text: str) -> str:
        printed = ""
        lines: list[str] = []
        for line in text.splitlines():
            if line.startswith("ottla start"):
                printed += self._shell(lines)
                _starts(line.partition("  #")[0], self.here, _environment(self.node, self.here))
                lines = []
            elif line.startswith("ottla streams run"):
                printed += self._shell(lines)
                self.running = runs(line, self.here, _environment(self.node, self.here))
                lines = []
            else:
                lines.append(line)
        return printed + self._shell(lines)

    def _shell(self, lines: list[str]) -> str:
        if not lines:
            return ""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", "\n".join(lines)],
            cwd=self.here,
            env=_environment(self.node, self.here),
            capture_output=True,
            timeout=_SECONDS_MAX,
            check=False,
            text=True,
        )
        assert done.returncode == 0, "\n".join((*lines, done.stdout, done.stderr))
        return done.stdout

    def _expect(self, text: str) -> None:
        if self.printed_by == "python":
            assert self.printed == text, f"{self.path.name} promises:\n{text}printed was:\n{self.printed}"
            return
        at = 0
        for line in text.splitlines():
            found = self.printed.find(line.rstrip(), at)
            assert found >= 0, f"{self.path.name} promises {line!r}; printed was:\n{self.printed}"
            at = found + len(line.rstrip())


def _starts(command: str, here: Path, environment: dict[str, str]) -> None:
    """The node comes up; on a free port, because Kafka's may be taken here."""
    aside = (
        "--set listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0" if ".properties" in command else "--port 0"
    )
    process = subprocess.Popen(
        [*command.split(), *aside.split()], cwd=here, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert "ready on 127.0.0.1:" in process.stdout.readline()
    finally:
        process.terminate()
        process.communicate(timeout=_SECONDS_MAX)


@pytest.fixture
def node(request: pytest.FixtureRequest) -> Iterator[ottla.Node]:
    path = request.node.callspec.params.get("path")
    with ottla.Node(settings=_SETTINGS.get(path and path.name, {})) as found:
        yield found


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.relative_to(DOCS).as_posix(), marks=_marks(path.name)) for path in _GUIDES],
)
def test_the_blocks_of_a_page_run(path: Path, tmp_path: Path, node: ottla.Node) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    page = Page(path, tmp_path, node)
    try:
        for language, title, text in _blocks(path):
            page.run(language, title, text)
    finally:
        page.close()


@pytest.mark.timeout(300)
def test_the_tests_of_the_guides_pass(tmp_path: Path) -> None:
    """All of them in one run of pytest, with the plug-in that every reader has."""
    tests = [
        text for path in _GUIDES for language, _, text in _blocks(path) if language == "python" and "def test_" in text
    ]
    for number, text in enumerate(tests):
        (tmp_path / f"test_{number}.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "ottla.testing", "."],
        cwd=tmp_path,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=_SECONDS_MAX,
        check=False,
        text=True,
    )
    assert f"{len(tests)} passed" in done.stdout, done.stdout + done.stderr


def test_no_other_page_has_blocks_that_look_as_if_they_ran() -> None:
    others = [path for path in DOCS.rglob("*.md") if path not in _GUIDES]
    assert [path for path in others if {"python", "bash"} & {language for language, _, _ in _blocks(path)}] == []
