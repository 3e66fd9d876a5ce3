"""kafka-metadata-shell: browse the metadata in a snapshot, or in a file of the metadata log.

Rules:
- With a command, it runs that command and exits: ls, cat, find, tree. An error in a path or a command is printed on
  stdout, and the exit code is 0, as in Apache's.
- Without a command, it is interactive, and also has cd, pwd, history, man, help and exit.
- A log file that does not begin at offset 0 holds only the changes since its first offset.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import TYPE_CHECKING

from ottla.cli.kafka.metadata.metadata_path import effective, is_directory, match, opened, parts
from ottla.cli.kafka.program import argument
from ottla.cli.kafka.program.argument import Words
from ottla.cli.kafka.program.option import Option, int32
from ottla.cli.kafka.program.tool import KAFKA_VERSION, Failed, tell
from ottla.kernel.error import KafkaError

if TYPE_CHECKING:
    from ottla.cli.kafka.metadata.metadata_tree import Node, TreeDirectory
    from ottla.metadata.image import Image

#: Command to (what argparse calls its words, how many there may be, what it does, only in the shell).
_COMMANDS: dict[str, tuple[str, str | None, str, bool]] = {
    "cat": ("targets", "+", "Show the content of nodes.", False),
    "cd": ("target", "?", "Go to a directory; without one, to /.", True),
    "exit": ("", None, "Leave the shell.", True),
    "find": ("paths", "*", "List all nodes below directories.", False),
    "help": ("", None, "Show this help.", True),
    "history": ("count", "?", "Show the commands so far, or the last of them.", True),
    "ls": ("targets", "*", "List nodes.", False),
    "man": ("cmd", "1", "Describe a command.", True),
    "pwd": ("", None, "Show the current directory.", True),
    "tree": ("targets", "+", "Show nodes with everything below them.", False),
}


def main() -> None:
    """The console script."""
    snapshot = Option("snapshot", "Metadata snapshot to read.", "SNAPSHOT", short="s", required=True)
    argument.tool(
        "kafka-metadata-shell",
        "The metadata shell: browse a snapshot of the metadata, or a file of its log.",
        _run,
        options=(snapshot,),
        rest=("command", "Command to run (default: an interactive shell)."),
        failed=_failed,
        help_code=1,
    )


def _failed(error: Exception) -> int:
    tell(f"Unexpected error: {error}")
    return 1


def _run(words: Words) -> int:
    from ottla.cli.kafka.metadata.metadata_tree import root

    given = words["rest"]
    with _locked(words["snapshot"]):
        if not given:
            print("Loading...")
        image = read_image(words["snapshot"])
        shell = Shell(root(image, KAFKA_VERSION, "ottla"), interactive=not given)
        if given:
            shell.run(given)
        else:
            print("Starting...")
            shell.talk()
    return 0


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Hold the lock of the log directory, if it has one, so that no node writes to it meanwhile."""
    from pathlib import Path

    from ottla.host.disk import HostDisk

    directory = Path(path).absolute().parent.parent
    if not (directory / ".lock").exists():
        yield
        return
    lock = HostDisk().lock(str(directory / ".lock"))
    if lock is None:
        raise Failed(
            f"Unable to lock {directory}. Please ensure that no broker or controller process is using this directory "
            "before proceeding."
        )
    try:
        yield
    finally:
        lock.close()


def read_image(path: str) -> Image:
    """Read the metadata in a file. Failed if the file has none."""
    from ottla.metadata.delta import MetadataReplayer
    from ottla.metadata.image import Image
    from ottla.wire.batch import check, read
    from ottla.wire.record import metadata

    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise Failed(f"{path}: {error.strerror}") from error
    fold = MetadataReplayer(Image.empty())
    try:
        for batch in read(data):
            header = check(batch.data)
            if header.is_control:
                continue
            for record in batch.records():
                message, _ = metadata.parse(record.value or b"")
                fold.replay(message, record.offset, header.partition_leader_epoch, header.max_timestamp)
            fold.publish(header.last_offset, header.partition_leader_epoch, header.max_timestamp)
    except (KafkaError, ValueError) as error:
        raise Failed(f"{path} is neither a metadata snapshot nor a metadata log file: {error}") from error
    if fold.image.offset < 0:
        raise Failed(f"{path} holds no metadata (expected a .checkpoint or a .log of __cluster_metadata-0)")
    return fold.image


class _Wrong(Exception):
    """An error message of argparse."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        if message.startswith("the following arguments are required"):
            message = "too few arguments"
        raise _Wrong(message)


class Shell:
    """An interpreter of commands on a tree."""

    def __init__(self, root: TreeDirectory, *, interactive: bool) -> None:
        self._root = root
        self._interactive = interactive
        self._at = "/"
        self._history: list[str] = []
        self._names = [name for name, (*_, shell_only) in _COMMANDS.items() if interactive or not shell_only]

    def talk(self) -> None:
        """Read and run commands until `exit` or the end of stdin."""
        print("[ Kafka Metadata Shell ]")
        self._complete()
        while True:
            try:
                line = input(">> ")
            except EOFError:
                print()
                return
            except KeyboardInterrupt:
                print("^C")
                continue
            self._history.append(line)
            try:
                words = shlex.split(line)
            except ValueError as error:
                print(error)
                continue
            if words[:1] == ["exit"]:
                return
            self.run(words)

    def run(self, words: Sequence[str]) -> None:
        """Run a command. Errors are printed."""
        words = list(words)
        while words and not words[-1]:
            words.pop()
        if not words:
            return
        name = words[0]
        if name not in self._names:
            print(self._unknown(name))
            return
        try:
            arguments = self._arguments(name, words[1:])
        except _Wrong as wrong:
            print(wrong)
            return
        getattr(self, f"_run_{name}")(arguments)

    def _unknown(self, name: str) -> str:
        close = [command for command in self._names if command.startswith(name)]
        if len(close) == 1:
            return f"invalid choice: '{name}': did you mean '{close[0]}'?"
        return f"invalid choice: '{name}' (choose from {', '.join(map(repr, self._names))})"

    def _arguments(self, name: str, words: list[str]) -> list[str]:
        title, count, *_ = _COMMANDS[name]
        parser = _Parser(add_help=False)
        if count == "1":
            parser.add_argument(title, nargs=1)
        elif count is not None:
            parser.add_argument(title, nargs=count)
        try:
            value = vars(parser.parse_args(words)).get(title)
        except _Wrong as wrong:
            message = re.sub(r"(?<=^unrecognized arguments: )(.*)", r"'\1'", str(wrong))
            raise _Wrong(message) from None
        return value if isinstance(value, list) else [] if value is None else [value]

    # ---- commands

    def _run_ls(self, targets: list[str]) -> None:
        from ottla.cli.kafka.metadata.metadata_tree import Leaf

        files: list[str] = []
        directories: list[tuple[str, list[str]]] = []
        for target in effective(targets):
            for path, node in self._found("ls", target, "no such file or directory."):
                name = path[-1] if path else "/"
                if isinstance(node, Leaf):
                    files.append(name)
                else:
                    directories.append((name, [child for child, _ in node.children()]))
        self._columns("", files)
        named = bool(files) or len(directories) > 1
        first = not files
        for name, children in directories:
            title = ""
            if named:
                title = ("" if first else "\n") + f"{name}:"
                first = False
            self._columns(title, children)

    def _columns(self, title: str, entries: list[str]) -> None:
        if not entries:
            return
        if title:
            print(title)
        for line in columns(entries, shutil.get_terminal_size().columns if self._interactive else 0):
            print(line)

    def _run_cat(self, targets: list[str]) -> None:
        from ottla.cli.kafka.metadata.metadata_tree import Leaf

        for target in targets:
            for _, node in self._found("cat", target, "No such file or directory."):
                print(node.text if isinstance(node, Leaf) else f"cat: {target}: Is a directory")

    def _run_find(self, paths: list[str]) -> None:
        for path in effective(paths):
            for _, node in self._found("find", path, "no such file or directory."):
                _walk(path, node)

    def _run_tree(self, targets: list[str]) -> None:
        for target in targets:
            for _, node in self._found("tree", target, "No such file or directory."):
                _draw(node, "")

    def _run_cd(self, target: list[str]) -> None:
        from ottla.cli.kafka.metadata.metadata_tree import Leaf

        where = target[0] if target else "/"
        for path, node in self._found("cd", where, "no such directory."):
            if isinstance(node, Leaf):
                print(f"cd: {where}: not a directory.")
            else:
                self._at = "/" + "/".join(path)

    def _run_pwd(self, _: list[str]) -> None:
        print(self._at)

    def _run_history(self, count: list[str]) -> None:
        try:
            shown = int32(count[0]) if count else len(self._history)
        except ValueError:
            print(f"argument count: could not convert '{count[0]}' to Integer")
            return
        first = len(self._history) - max(shown, 0)
        for number, line in enumerate(self._history):
            if number >= first:
                print(f"{number:5d}  {line}")

    def _run_help(self, _: list[str]) -> None:
        print("Welcome to the metadata shell.\n")
        for name in self._names:
            print(f"  {name:<10}{_COMMANDS[name][2]}")

    def _run_man(self, name: list[str]) -> None:
        if name[0] in self._names:
            print(f"{name[0]}: {_COMMANDS[name[0]][2]}")
        else:
            print(f"man: unknown command {name[0]}. Type help to get a list of commands.")

    # ---- paths

    def _found(self, command: str, target: str, missing: str) -> Iterator[tuple[tuple[str, ...], Node]]:
        """Yield all nodes that match a path with wildcards; print an error when there are none."""
        whole = target if target.startswith("/") else f"{self._at}/{target}"
        matches = list(match(self._root, parts(whole), ()))
        if not matches:
            print(f"{command}: {target}: {missing}")
        yield from matches

    def _complete(self) -> None:
        """Enable completion of commands and paths on a terminal."""
        if not sys.stdin.isatty():
            return
        try:
            import readline
        except ImportError:
            return
        readline.set_completer_delims(" ")
        readline.set_completer(self._completion(readline.get_line_buffer))
        readline.parse_and_bind("tab: complete")

    def _completion(self, line: Callable[[], str]) -> Callable[[str, int], str | None]:
        def complete(text: str, number: int) -> str | None:
            choices = [*self.choices(line(), text), None]
            return choices[min(number, len(choices) - 1)]

        return complete

    def choices(self, line: str, text: str) -> list[str]:
        """Return the completions of `text`, the last word of `line`."""
        if " " not in line.lstrip():
            return [f"{name} " for name in self._names if name.startswith(text)]
        before, slash, last = text.rpartition("/")
        whole = f"{before}{slash}" if text.startswith("/") else f"{self._at}/{before}"
        return [
            f"{before}{slash}{name}{'/' if is_directory(child) else ' '}"
            for _, node in match(self._root, parts(whole), ())
            if is_directory(node)
            for name, child in node.children()
            if name.startswith(last)
        ]


def columns(entries: list[str], width: int) -> list[str]:
    """The lines of as many columns as fit into the width, each as wide as its longest entry; one without a width."""
    cells, widths = [entries], [0]
    for count in range(width // 4, 1, -1):
        height = -(-len(entries) // count)
        tried = [entries[at : at + height] for at in range(0, len(entries), height)]
        sizes = [max(map(len, column)) + 2 for column in tried]
        if sum(sizes) <= width:
            cells, widths = tried, sizes
            break
    rows = zip_longest(*cells, fillvalue="")
    return ["".join(f"{cell:<{size}}" for cell, size in zip(row, widths, strict=True)).rstrip() for row in rows]


def _walk(path: str, node: Node) -> None:
    print(path)
    if is_directory(node):
        for name, child in node.children():
            _walk(f"/{name}" if path == "/" else f"{path}/{name}", opened(name, child, path))


def _draw(node: Node | None, indent: str) -> None:
    from ottla.cli.kafka.metadata.metadata_tree import Leaf

    if isinstance(node, Leaf):
        print(f"{indent}{node.text}")
    elif node is not None:
        for name, child in node.children():
            print(f"{indent}{name}:")
            _draw(child, indent + "  ")
