"""Does something at one point of the client's code, as a signal or another thread would."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

_LOOKS = frozenset(name for name in dis.opmap if name == "RESUME" or "JUMP_BACKWARD" in name)
_CALLS = frozenset({"CALL", "CALL_FUNCTION_EX", "CALL_KW"})


class AtPoint:
    """Acts in this thread at the point of this number in a package of the client.

    The interpreter looks for signals, and lets other threads go on, where a function begins, where a loop goes back and
    behind a call into C. With `everywhere`, each of its instructions is a point.
    """

    def __init__(self, number: int, package: str, act: Callable[[], None], *, everywhere: bool = False) -> None:
        self.left = number
        self._act = act
        self._everywhere = everywhere
        self._traced_files = (f"/ottla/client/{package}/", "/one_thread.py")
        self._last: dict[FrameType, str] = {}

    def __enter__(self) -> AtPoint:
        # Python 3.12 traces opcodes only if a frame wants it before tracing begins.
        sys._getframe().f_trace_opcodes = True
        sys.settrace(self._entered)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _entered(self, frame: FrameType, event: str, _: object) -> Any:
        caller = frame.f_back
        if caller is not None and caller in self._last:
            # No call into C: the interpreter looks inside.
            self._last[caller] = ""
        name = frame.f_code.co_filename
        if self.left < 0 or not any(part in name for part in self._traced_files):
            return None
        # Python 3.13 traces the opcodes only of a frame that is traced already.
        frame.f_trace = self._traced
        frame.f_trace_opcodes = True
        self._last[frame] = "RESUME"
        return self._traced

    def _traced(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "opcode":
            last = self._last.get(frame, "")
            self._last[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if self._everywhere or last in _LOOKS or last in _CALLS:
                self.left -= 1
                if self.left == -1:
                    self._act()
        return self._traced


def _interrupt() -> None:
    raise KeyboardInterrupt


class CtrlC(AtPoint):
    """Interrupts this thread at the point of this number in a package of the client."""

    def __init__(self, number: int, package: str) -> None:
        super().__init__(number, package, _interrupt)
