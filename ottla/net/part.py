"""What a reply is made of: bytes, and pieces of files that are sent without being read."""

from __future__ import annotations

from typing import Protocol

from ottla.kernel.ports import File


class FileRange(Protocol):
    """A piece of a file that is sent without being read (`ottla.log` makes it). It keeps its file open."""

    file: File
    position: int

    def __len__(self) -> int: ...
    def bytes(self) -> bytes: ...


#: What a reply is made of.
Part = bytes | memoryview | FileRange
