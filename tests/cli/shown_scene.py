r"""Scenes of the tools as their users see them: every line of stdout and stderr, and the exit code.

`tests/cli/test_shown.py` plays the files of tests/cli/shown, each with a node of its own. With OTTLA_WRITE_SCENES=1 in
the environment it writes what the tools say into the files: read the difference before you commit it.

    $ ottla topics list                  a command; stdout and stderr are no terminals, @ is --bootstrap-server
    % ottla topics list                  the same on a terminal of 100 columns; styles are shown as <bold>...</>
    < text                               a line that is typed
    flights  1                           a line of stdout; \t is a tab
    ! ottla: there is no topic x         a line of stderr
    [1]                                  the exit code, if it is not 0

    file rows.csv                        makes {dir}/rows.csv of the lines that follow, up to an empty one
    do open_transaction flights          calls a function of `tests/cli/shown_state.py`: what no tool can bring about
    env NAME=VALUE                       sets a variable of the environment
    node KEY=VALUE                       a setting of the node; before everything else
    vary {size} = [\d.]+ GiB             what this expression matches is shown as {size}

Moments of this run are shown as {now}, or {now+24h}; random ids as {id}. The rest must be the same each time.
"""

import io
import os
import re
import shlex
import signal
import sys
import tempfile
import time
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from datetime import datetime
from difflib import ndiff
from importlib import import_module
from pathlib import Path
from unittest import mock

import pytest

import ottla
from ottla.cli import screen
from tests.cli.kafka_tool import SCRIPTS
from tests.cli.shown_state import State

HERE = Path(__file__).parent / "shown"
_HOUR_MS = 3_600_000
_FAR_HOURS = 24 * 60
_STYLES = {"1": "bold", "2": "dim", "31": "red", "32": "green", "33": "yellow", "36": "cyan", "0": "/"}
_MOMENT = re.compile(r"(?<!\d)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z|(?<![\d.@])\d{13}(?![\d.])")
#: 16 bytes in base64, but no names of Java's classes.
_ID = re.compile(r"(?<![\w-])(?!(?:[A-Z]?[a-z]+)+(?![\w-]))(?=[\w-]*[a-z])(?=[\w-]*[A-Z])[\w-]{22}(?![\w-])")
_STYLED = re.compile(r"\x1b\[([\d;]*)m")
#: A bar of progress, which a terminal shows and takes away again.
_BAR = re.compile(r"\x1b\[\?25l.*?\x1b\[\?25h(\r?\x1b\[1A\x1b\[2K)?", re.DOTALL)
_USAGE = re.compile(r"^usage: .*?(?=^\S+: error: )", re.DOTALL | re.MULTILINE)
#: The address of an embedded node's controller.
_CONTROLLER = re.compile(r"(CONTROLLER://127\.0\.0\.1:)\d+")
#: The options of one of Kafka's tools, which follow each of its refusals.
_HELP = re.compile(r"^Option +Description *\n(?:[ -].*\n)+", re.MULTILINE)
#: The help of argparse, whose lines each version of Python breaks and fills in its own way.
_ARGPARSE = re.compile(r"^usage: .*", re.DOTALL)
_CONTROL = re.compile(r"[^\n -~]")
_UUID = re.compile(r"[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}")


@dataclass
class Step:
    """A command with its answer, or another line of the scene."""

    line: str
    typed: list[str] = field(default_factory=list)
    answer: list[str] = field(default_factory=list)

    @property
    def command(self) -> str:
        return self.line.partition(" ")[0]

    @property
    def rest(self) -> str:
        return self.line.partition(" ")[2]


def scenes() -> list[Path]:
    """All of them."""
    return sorted(HERE.glob("*.txt"))


def read(path: Path) -> tuple[list[str], list[Step]]:
    """(the comment at the head, the steps)."""
    head: list[str] = []
    steps: list[Step] = []
    fresh = True
    for line in path.read_text().splitlines():
        if not line:
            fresh = True
        elif not steps and line.startswith("#"):
            head.append(line)
        elif fresh or line.startswith(("do ", "env ", "node ", "vary ")):
            steps.append(Step(line))
            fresh = line.startswith(("do ", "env ", "node ", "vary "))
        elif line.startswith("< "):
            steps[-1].typed.append(line[2:])
        else:
            steps[-1].answer.append(line)
    return head, steps


class _Stream(io.TextIOWrapper):
    """A standard stream that may say that it is a terminal."""

    terminal = False

    def isatty(self) -> bool:
        return self.terminal


class Player:
    """Plays the steps of a scene against a node."""

    def __init__(self, node: ottla.Node, directory: Path, environment: pytest.MonkeyPatch, state: State) -> None:
        self._server, self._directory, self._environment = node.bootstrap_servers, directory, environment
        self._data = node.data
        self._state = state
        self._vary: list[tuple[str, re.Pattern[str]]] = []

    def play(self, path: Path) -> None:
        """Run every command; the answers must be those of the scene (or are written into it)."""
        head, steps = read(path)
        wrong: list[str] = []
        for step in steps:
            if step.command in ("$", "%"):
                found = self._answer(step)
                if os.environ.get("OTTLA_WRITE_SCENES"):
                    step.answer = found
                elif found != step.answer:
                    wrong += [step.line, *ndiff(step.answer, found), ""]
            else:
                self._prepare(step)
        assert not wrong, f"{path.name}: what the scene says (-), what was said (+)\n" + "\n".join(wrong)
        if os.environ.get("OTTLA_WRITE_SCENES"):
            path.write_text(_written(head, steps))

    def _prepare(self, step: Step) -> None:
        if step.command == "file":
            (self._directory / step.rest).write_text(self._filled("".join(f"{line}\n" for line in step.answer)))
        elif step.command == "do":
            name, *words = step.rest.split()
            getattr(self._state, name)(*words)
        elif step.command == "env":
            name, _, value = step.rest.partition("=")
            self._environment.setenv(name, self._filled(value))
        elif step.command == "vary":
            name, _, pattern = step.rest.partition(" = ")
            self._vary.append((name, re.compile(pattern, re.MULTILINE)))
        else:
            assert step.command == "node", step.line

    def _filled(self, text: str) -> str:
        for placeholder, value in (("{dir}", str(self._directory)), ("{data}", self._data), ("{server}", self._server)):
            text = text.replace(placeholder, value)
        return text

    def _answer(self, step: Step) -> list[str]:
        """What a tool said without what differs from run to run."""
        tool, *arguments = shlex.split(self._filled(step.rest))
        words = [
            part for each in arguments for part in (("--bootstrap-server", self._server) if each == "@" else (each,))
        ]
        typed = "".join(f"{line}\n" for line in step.typed)
        code, out, err = run(tool, words, self._filled(typed), terminal=step.command == "%")
        if "--help" not in words:
            err = _HELP.sub("{help}\n", err)
        lines = self._plain(out).splitlines()
        lines += [f"! {line}".rstrip() for line in self._plain(err).splitlines()]
        return [*(line.rstrip() or "." for line in lines), *([f"[{code}]"] if code else [])]

    def _plain(self, text: str) -> str:
        # Python's versions break the lines of a usage in different places.
        text = _ARGPARSE.sub(_uniform, _USAGE.sub("", text))
        text = _STYLED.sub(lambda found: _style(found[1]), _BAR.sub("", text))
        for name, value in (("{dir}", str(self._directory)), ("{data}", self._data), ("{server}", self._server)):
            text = text.replace(value, name)
        text = re.sub(rf"\b{self._server.rpartition(':')[2]}\b", "{port}", text)
        text = _CONTROLLER.sub(r"\1{port}", text)
        text = _ID.sub("{id}", _UUID.sub("{uuid}", text))
        text = _MOMENT.sub(_moment, text)
        text = _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)
        for name, pattern in self._vary:
            text = pattern.sub(name.replace("\\", r"\\"), text)
        return text


def _uniform(found: re.Match[str]) -> str:
    usage, blank, rest = found[0].partition("\n\n")
    rest = re.sub(r"(--\S+) (\S+), (-\w) \2", r"\1, \3 \2", re.sub(r"(?<=\S)(\n {10,}| {2,})(?=\S)", "  ", rest))
    return " ".join(usage.split()) + blank + rest


def _style(codes: str) -> str:
    return "".join(f"<{_STYLES.get(code, code)}>" for code in (codes or "0").split(";"))


def _moment(found: re.Match[str]) -> str:
    text = found[0]
    at_ms = int(text) if text.isdecimal() else datetime.fromisoformat(text).timestamp() * 1000
    hours = (at_ms - time.time() * 1000) / _HOUR_MS
    if abs(hours) > _FAR_HOURS:
        return text
    return f"{{now{round(hours):+}h}}" if round(hours) else "{now}"


def run(tool: str, words: list[str], typed: str, *, terminal: bool) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of a tool that runs in this process."""
    module, _, function = SCRIPTS[tool].partition(":")
    with ExitStack() as stack:
        in_, out, err = (stack.enter_context(_stream(terminal)) for _ in range(3))
        in_.write(typed)
        in_.seek(0)
        for console in (screen.out, screen.err, screen._pipe_console):
            console.cache_clear()
        stack.enter_context(mock.patch.object(sys, "argv", [tool, *words]))
        stack.enter_context(mock.patch.object(sys, "stdin", in_))
        stack.enter_context(redirect_stdout(out))
        stack.enter_context(redirect_stderr(err))
        # The verifiable clients take the signals over.
        for number in (signal.SIGTERM, signal.SIGINT):
            stack.callback(signal.signal, number, signal.getsignal(number))
        with pytest.raises(SystemExit) as left:
            getattr(import_module(module), function)()
        assert isinstance(left.value.code, int)
        return left.value.code, _content(out), _content(err)


def _stream(terminal: bool) -> _Stream:
    """A terminal is no regular file, for which there is a bar of progress."""
    # The caller closes it.
    stream = _Stream(io.BytesIO() if terminal else tempfile.TemporaryFile(), "utf-8")  # noqa: SIM115
    stream.terminal = terminal
    return stream


def _content(stream: _Stream) -> str:
    stream.seek(0)
    return stream.read()


def _written(head: list[str], steps: list[Step]) -> str:
    blocks: list[str] = []
    for step in steps:
        lines = "\n".join([step.line, *(f"< {line}" for line in step.typed), *step.answer])
        short = step.command in ("do", "env", "node", "vary")
        blocks.append(lines + ("\n" if short else "\n\n"))
    return "\n".join(head) + "\n\n" + "".join(blocks).rstrip("\n") + "\n"
