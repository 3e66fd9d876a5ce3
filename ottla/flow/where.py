"""The line of the user's program that made a node."""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Where:
    """A file and a line, as a traceback would name them."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


#: Modules that are not part of the user's program; `dataclasses.replace` calls ours.
_OURS = ("ottla.flow", "ottla.streams")
_BETWEEN = "dataclasses"


def here() -> Where:
    """The innermost caller outside of these modules."""
    frame = sys._getframe(1)
    while frame.f_back is not None and (
        (name := frame.f_globals.get("__name__", "")).startswith(_OURS) or name == _BETWEEN
    ):
        frame = frame.f_back
    return Where(frame.f_code.co_filename, frame.f_lineno)
