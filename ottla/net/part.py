"""The parts of a reply: bytes, and ranges of files that are sent without being read."""

from __future__ import annotations

from typing import Protocol

from ottla.kernel.ports import File


class FileRange(Protocol):
    """A range of a file that is sent without being read (`ottla.log` creates it). It keeps its file open."""

    file: File
    position: int

    def __len__(self) -> int: ...
    def bytes(self) -> bytes: ...


#: A piece of a reply.
Part = bytes | memoryview | FileRange
