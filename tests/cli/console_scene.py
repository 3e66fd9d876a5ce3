"""Scenes of Kafka's tools: text files of commands and what Apache Kafka 4.3.1's tools answer to them.

`tests/cli/test_console.py` plays them with our tools, `tests/interop/test_console.py` with Apache's, and the answers
must be the same. A scene is written by Apache's tools, never by hand: with OTTLA_WRITE_SCENES=1 in the environment,
`make interop ARGS='-k console'` writes what they answer.

    $ kafka-topics @ --create --topic {name}     a command; @ is --bootstrap-server and the node's address
    < text                                       a line that is typed
    Created topic {name}.                        what is on stdout
    ! Something is wrong                         the first line on stderr
    [0]                                          the exit code

    file plan.csv                                makes {dir}/plan.csv of the lines that follow, up to an empty one
"""

import os
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import ndiff
from pathlib import Path

from tests.cli.tool import Said

HERE = Path(__file__).parent / "console"
#: Runs a tool: its name, its arguments, what is typed.
Run = Callable[..., Said]

_PLACEHOLDERS = (
    (re.compile(r"TopicId: [\w-]{22}"), "TopicId: {id}"),
    (re.compile(r"(?<=[^-]-)[\w-]{22}(?![\w-])"), "{id}"),
    (re.compile(r'(?<="log_dirs":\[)"/[^]]*'), '"{data}"'),
    (re.compile(r"[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}"), "{uuid}"),
    (re.compile(r"(?<!\d)1[789]\d{11}(?!\d)"), "{time}"),
)
#: Java's stack traces, and what it has to say about the records of a new cluster, which ours leave out.
_LEFT_OUT = re.compile(
    r"\tat |\t\.\.\. |Caused by: |(java|org|joptsimple|com)\.[\w.$]+(Exception|Error): |Bootstrap metadata: "
)
#: A set, in the order of a hash table.
_SET = re.compile(r"(?<=\[)[A-Z_]+(?:, [A-Z_]+)+(?=\])|\[[\w-]+\](?:, \[[\w-]+\])+")
#: What Java wraps the message of an exception in.
_JAVA = re.compile(r'^(Exception in thread "main" |(java|org|joptsimple|com)[\w.$]+(Exception|Error): )+')


@dataclass
class Step:
    """A command with its answer, or a file (a command that begins with `file`)."""

    command: str
    typed: list[str] = field(default_factory=list)
    answer: list[str] = field(default_factory=list)


def scenes() -> list[Path]:
    """All of them."""
    return sorted(HERE.glob("*.txt"))


def read(path: Path) -> tuple[list[str], list[Step]]:
    """(the comment at the head, the steps)."""
    head: list[str] = []
    steps: list[Step] = []
    for line in path.read_text().splitlines():
        if not steps and line.startswith("#"):
            head.append(line)
        elif line.startswith(("$ ", "file ")):
            steps.append(Step(line))
        elif line.startswith("< "):
            steps[-1].typed.append(line[2:])
        elif steps:
            steps[-1].answer.append(line)
    for step in steps:
        while step.answer and not step.answer[-1]:
            step.answer.pop()
    return head, steps


def play(path: Path, run: Run, server: str, name: str, directory: Path) -> None:
    """Run every command; the answers must be those of the scene (or are written into it)."""
    head, steps = read(path)
    values = {"{name}": name, "{dir}": str(directory)}
    wrong: list[str] = []
    for step in steps:
        if step.command.startswith("file "):
            text = _filled("\n".join(step.answer), values)
            (directory / step.command.removeprefix("file ")).write_text(text + "\n")
            continue
        tool, *arguments = shlex.split(_filled(step.command.removeprefix("$ "), values))
        words = [part for each in arguments for part in (("--bootstrap-server", server) if each == "@" else (each,))]
        said = run(tool, *words, typed="".join(f"{line}\n" for line in step.typed))
        found = answer(said, server, values)
        if os.environ.get("OTTLA_WRITE_SCENES"):
            step.answer = found
        elif found != step.answer:
            wrong += [step.command, *list(ndiff(step.answer, found)), ""]
    assert not wrong, f"{path.name}: what the scene says (-), what was said (+)\n" + "\n".join(wrong)
    if os.environ.get("OTTLA_WRITE_SCENES"):
        path.write_text(_written(head, steps))


def _filled(text: str, values: dict[str, str]) -> str:
    for placeholder, value in values.items():
        text = text.replace(placeholder, value)
    return text


def answer(said: Said, server: str, values: dict[str, str]) -> list[str]:
    """What a tool said without what differs from run to run: its lines, its first error, its code."""
    lines = [] if said.out.startswith("usage:") else _plain(said.out, server, values).splitlines()
    lines = [_sorted_configs(line).rstrip() for line in lines if not _LEFT_OUT.match(line)]
    while lines and not lines[-1]:
        lines.pop()
    if error := _first(said.err):
        lines.append(f"! {_plain(error, server, values)}")
    return [*lines, f"[{said.code}]"]


def _plain(text: str, server: str, values: dict[str, str]) -> str:
    text = text.replace(server, "{server}")
    for placeholder, value in values.items():
        text = text.replace(value, placeholder)
    for pattern, placeholder in _PLACEHOLDERS:
        text = pattern.sub(placeholder, text)
    return _SET.sub(lambda found: ", ".join(sorted(found[0].split(", "))), text)


def _sorted_configs(line: str) -> str:
    """Java shows the settings of a topic in the order of a hash table."""
    before, found, configs = line.partition("Configs: ")
    return f"{before}{found}{','.join(sorted(configs.split(',')))}" if found and "\tTopicId" in before else line


def _first(err: str) -> str:
    """The first line that says what is wrong: nothing of a logger, no usage of argparse."""
    lines = [line for line in err.splitlines() if line.strip() and not line.startswith(("WARN ", "ERROR "))]
    if not lines:
        return ""
    if lines[0].startswith("usage:"):
        # argparse4j stretches its lines to the width of the terminal, and names each choice in its own way.
        _, _, wrong = " ".join(" ".join(lines).split()).rpartition("error: ")
        wrong = re.sub(r"\(choose.*|'.*|argument (?=command)", "", wrong.replace("-- ", "--")).replace("command: ", "")
        # Which of several they name differs.
        return re.sub(r"argument .* is required", "an argument is required", wrong).strip()
    return _JAVA.sub("", lines[0])


def _written(head: list[str], steps: list[Step]) -> str:
    blocks = ["\n".join([each.command, *(f"< {line}" for line in each.typed), *each.answer]) for each in steps]
    return "\n".join(head) + "\n\n" + "\n\n".join(blocks) + "\n"
