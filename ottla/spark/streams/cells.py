"""A task's numbers as the metadata of its committed offsets. Free of Arrow, so that tools start quickly.

Every source partition's commit has a copy: a partition's commit goes with its topic. Partitions that were not among the
task's sources for a while have an older copy, and another tool's commit has none; so copies are counted, and the newest
one counts, whole.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping

_FORM = "ottla1:"
#: Under this name, which none of a task's numbers has, stands the number of the commit; programs before it wrote none.
_COMMIT = ""


def pack(cells: Mapping[str, int], commit: int) -> str:
    """Cells as the metadata of a commit. A broker takes 4,096 characters by default (offset.metadata.max.bytes)."""
    text = json.dumps({**cells, _COMMIT: commit}, sort_keys=True)
    return _FORM + base64.b85encode(zlib.compress(text.encode())).decode()


def newest(copies: Iterable[str]) -> tuple[dict[str, int], int]:
    """The cells of the newest commit among these metadata, and its number; none, and 0, of commits of other tools."""
    found: tuple[dict[str, int], int] = {}, -1
    for metadata in copies:
        if metadata.startswith(_FORM):
            cells: dict[str, int] = json.loads(zlib.decompress(base64.b85decode(metadata.removeprefix(_FORM))))
            commit = cells.pop(_COMMIT, 0)
            if commit > found[1]:
                found = cells, commit
    return found[0], max(0, found[1])
