"""The limits of the process, and what a node does where the system lacks a call or a package."""

import asyncio
import errno
import fcntl
import os
import resource
import subprocess
import sys

import pytest

from ottla.host import descriptor, stacks
from ottla.host.loop import new_loop
from ottla.host.shift import ShiftedClock, new_shifted_loop

INFINITE = resource.RLIM_INFINITY
PLENTY, MACOS = 1 << 20, 10_240


@pytest.mark.parametrize(
    ("soft", "hard", "allowed_max", "tried"),
    [
        (256, 4096, INFINITE, [4096]),
        (4096, 4096, INFINITE, []),
        (256, INFINITE, INFINITE, [PLENTY]),
        (INFINITE, INFINITE, INFINITE, []),
        (PLENTY, INFINITE, INFINITE, []),
        (256, INFINITE, MACOS, [PLENTY, MACOS]),
        (MACOS, INFINITE, MACOS, [PLENTY]),
        (256, INFINITE, 256, [PLENTY, MACOS]),
        (256, 65_536, MACOS, [65_536, MACOS]),
    ],
)
def test_the_limit_of_open_files_is_raised_as_far_as_the_system_lets(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, allowed_max: int, tried: list[int]
) -> None:
    asked: list[tuple[int, int]] = []

    def set_limit(_: int, limits: tuple[int, int]) -> None:
        asked.append(limits)
        if allowed_max != INFINITE and limits[0] > allowed_max:
            raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    descriptor._raise_limit()
    assert asked == [(limit, hard) for limit in tried]


def test_a_file_moves_above_the_range_of_select_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    descriptor.allow_many()
    low, other = os.pipe()
    high = descriptor.out_of_the_way(low)
    assert high >= 1024
    with pytest.raises(OSError) as closed:
        os.fstat(low)
    assert closed.value.errno == errno.EBADF
    assert descriptor.out_of_the_way(high) == high

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    assert descriptor.out_of_the_way(other) == other
    descriptor._grow_table()
    for fd in (high, other):
        os.close(fd)


def test_a_node_leaves_no_core_file_and_keeps_the_hard_limit() -> None:
    program = (
        "import resource; from ottla.host.descriptor import set_limits\n"
        "most = resource.getrlimit(resource.RLIMIT_CORE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (most, most))\n"
        "set_limits(); files = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "print(resource.getrlimit(resource.RLIMIT_CORE) == (0, most), files[0] == files[1])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"


@pytest.mark.parametrize("there", [True, False])
def test_a_loop_is_uvloops_where_that_is_installed(monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    if not there:
        monkeypatch.setitem(sys.modules, "uvloop", None)
    clock = ShiftedClock()
    plain, shifted = new_loop(), new_shifted_loop(clock)
    ran: list[str] = []

    async def wait_a_day() -> None:
        shifted.call_later(86_400, ran.append, "a day later")
        clock.advance(86_400_000)

    try:
        for loop in (plain, shifted):
            assert isinstance(loop, asyncio.AbstractEventLoop)
            assert any("uvloop" in kind.__module__ for kind in type(loop).__mro__) is there
        shifted.run_until_complete(wait_a_day())
        assert ran == ["a day later"]
    finally:
        plain.close()
        shifted.close()
    assert clock.follower is None


def test_stacks_are_written_on_a_signal_and_a_system_without_memfd_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = """
import os, signal
from ottla.host.stacks import tell_on_signal
tell_on_signal()
links = {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in range(3, 64) if os.path.islink(f"/proc/self/fd/{fd}")}
((fd, link),) = (each for each in links.items() if "memfd:" in each[1])
def deep_down():
    os.kill(os.getpid(), signal.SIGUSR2)
    return os.pread(fd, 9999, 0)
first = deep_down()
os.ftruncate(fd, 0)
print(link, b"in deep_down" in first, deep_down().count(b"\\0"))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "/memfd:ottla-stacks (deleted) True 0\n", done.stderr
    monkeypatch.delattr(os, "memfd_create")
    registered: list[object] = []
    monkeypatch.setattr("faulthandler.register", lambda *given, **_: registered.append(given))
    stacks.tell_on_signal()
    assert registered == []
