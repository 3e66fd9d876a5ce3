"""Where few bytes of many match, and the memory for such searches.

NumPy's `flatnonzero` looks at each byte; where nearly all are false it is faster to look at eight of them at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_WORD = 8
#: Times a word whose only set byte is 1, it has the number of that byte in its highest byte.
_NUMBER_OF_BYTE = np.uint64(0x0001020304050607)
_HIGHEST = np.uint64(56)
_ONE = np.uint64(1)
#: After a freed mapping of this size glibc keeps twice as much, in each arena (M_TRIM_THRESHOLD in mallopt(3)).
_KEPT_BYTES = 8 << 20


def true_places(marks: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The positions of the true values, as `np.flatnonzero`. The array is contiguous, and its bytes are 0 or 1."""
    whole = marks.size - marks.size % _WORD
    words = marks[:whole].view("<u8")
    at = np.flatnonzero(words != 0)
    word = words[at]
    if (word & (word - _ONE)).any():
        # Two in one word.
        return np.flatnonzero(marks)
    at <<= 3
    at += ((word * _NUMBER_OF_BYTE) >> _HIGHEST).view(np.int64)
    rest = np.flatnonzero(marks[whole:])
    return np.concatenate((at, rest + whole)) if rest.size else at


def keep_freed_memory() -> None:
    """Let glibc keep some freed memory for the next table; a program that has set its thresholds keeps those.

    Otherwise it returns each freed array to the system, and the next one costs a page fault for every 4 KiB: a tenth of
    what reading JSON costs. Each thread that frees arrays may keep 16 MiB. Other C libraries ignore this, and so
    does glibc where its heap has a hole of that size.
    """
    block: Any = np.empty(_KEPT_BYTES, dtype=np.uint8)
    del block
