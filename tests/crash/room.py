"""A small file system of its own for a node's directories: a tmpfs in a mount namespace, which a holder keeps.

Neither root nor a device is needed: the namespace belongs to a user namespace of ours (`unshare -Urm`). Where the
machine does not let users have one, `Room` fails and says so. `enter` goes before a command that is to see it.

The module run as a program is the holder: it mounts, and takes and gives room as it is told.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path

_PAGE_BYTES = 4096
_PIECE_BYTES = 1 << 16


class Room:
    """The file system, mounted over `directory` for whoever `enter`s. Whoever makes it calls `close`."""

    def __init__(self, directory: Path, size_bytes: int, inodes: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._holder = subprocess.Popen(
            ["unshare", "-Urm", sys.executable, "-m", "tests.crash.room", directory, str(size_bytes), str(inodes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        assert self._holder.stderr is not None
        if self._holder.stdout.readline() != "ready\n":
            said = self._holder.stderr.read()
            self.close()
            raise RuntimeError(f"no file system of its own without user and mount namespaces: {said}")

    @property
    def enter(self) -> Sequence[str]:
        """What goes before a command: it runs where the file system is."""
        return ("nsenter", "-t", str(self._holder.pid), "-U", "-m", "--preserve-credentials")

    def fill(self, left_bytes: int = 0) -> None:
        """Take all the room but so much, in pages."""
        self._say(f"fill {left_bytes}")

    def forbid_files(self) -> None:
        """Let no other file be made."""
        self._say("forbid 0")

    def free(self) -> None:
        """Give all that was taken back."""
        self._say("free 0")

    def close(self) -> None:
        """The file system goes, with all that is in it, when nobody uses it any more."""
        with self._holder:
            assert self._holder.stdin is not None
            self._holder.stdin.close()
            self._holder.wait(10)

    def _say(self, line: str) -> None:
        assert self._holder.stdin is not None
        assert self._holder.stdout is not None
        print(line, file=self._holder.stdin, flush=True)
        answer = self._holder.stdout.readline()
        assert answer == "done\n", f"{line}: {answer!r}"


def _hold(directory: Path, size_bytes: int, inodes: int) -> None:
    options = f"size={size_bytes},nr_inodes={inodes},mode=0755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "room", directory], check=True)
    (directory / "filler").touch()
    print("ready", flush=True)
    for line in sys.stdin:
        what, number = line.split()
        match what:
            case "fill":
                _fill(directory, int(number))
            case "forbid":
                _forbid(directory)
            case _:
                for each in directory.glob("filler-*"):
                    each.unlink()
                os.truncate(directory / "filler", 0)
        print("done", flush=True)


def _fill(directory: Path, left_bytes: int) -> None:
    # The node may take the last of it meanwhile.
    with (directory / "filler").open("ab", buffering=0) as filler, contextlib.suppress(OSError):
        for piece in (_PIECE_BYTES, _PAGE_BYTES):
            while _left(directory) >= left_bytes + piece:
                filler.write(bytes(piece))


def _left(directory: Path) -> int:
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


def _forbid(directory: Path) -> None:
    with contextlib.suppress(OSError):
        for number in count():
            (directory / f"filler-{number}").touch()


if __name__ == "__main__":
    _hold(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
