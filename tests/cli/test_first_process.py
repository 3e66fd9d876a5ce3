"""The first process of a container, and which program `ottla` runs."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from ottla import cli

TERM = signal.SIGTERM


@pytest.fixture(autouse=True)
def ran(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The programs that ran. SIGTERM begins blocked, as the image starts the process, and ends as it was."""
    ran: list[str] = []
    monkeypatch.setattr("ottla.cli.node.start_file", lambda: ran.append("file" if gc.isenabled() else "file, no gc"))
    monkeypatch.setattr("ottla.cli.ottla.root.run", lambda: ran.append("tools" if gc.isenabled() else "tools, no gc"))
    handler, mask = signal.getsignal(TERM), signal.pthread_sigmask(signal.SIG_BLOCK, [TERM])
    yield ran
    signal.signal(TERM, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    gc.enable()


@pytest.mark.parametrize(
    ("parent", "pid", "ends", "open_"),
    [(0, 1, True, True), (1, 1, True, True), (1, 7, False, True), (2, 7, False, False), (500, 501, False, False)],
)
def test_sigterm_ends_the_first_process_of_a_container_and_reaches_a_child_of_its_init(
    monkeypatch: pytest.MonkeyPatch, ran: list[str], parent: int, pid: int, ends: bool, open_: bool
) -> None:
    before: Any = signal.getsignal(TERM)
    ended: list[int] = []
    monkeypatch.setattr(os, "getppid", lambda: parent)
    monkeypatch.setattr(os, "getpid", lambda: pid)
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(sys, "argv", ["ottla", "topics"])
    cli.main()
    handler: Any = signal.getsignal(TERM)
    assert (handler is not before) is ends
    assert (TERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])) is open_
    if ends:
        os.kill(os.getpid() if pid != 1 else int(os.readlink("/proc/self")), TERM)
        assert ended == [128 + TERM]
    assert ran == ["tools"]


@pytest.mark.parametrize(
    ("words", "program"),
    [
        (["start", "server.properties"], "file, no gc"),
        (["start"], "tools"),
        (["start", "--help"], "tools"),
        (["start", "server.properties", "--set"], "tools"),
        (["topics", "list"], "tools"),
        ([], "tools"),
    ],
)
def test_a_node_from_a_file_starts_without_the_tools(
    monkeypatch: pytest.MonkeyPatch, ran: list[str], words: list[str], program: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["ottla", *words])
    cli.main()
    assert ran == [program]


def test_ctrl_c_while_the_tools_are_imported_is_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupting:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "ottla.cli.ottla.root":
                raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["ottla", "topics"])
    monkeypatch.delitem(sys.modules, "ottla.cli.ottla.root")
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 130
