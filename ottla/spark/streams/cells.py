"""A task's numbers as the metadata of its committed offsets. Free of Arrow, so that tools start quickly."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping

_FORM = "ottla1:"


def pack(cells: Mapping[str, int]) -> str:
    """Cells as the metadata of a commit. A broker takes 4,096 characters by default (offset.metadata.max.bytes)."""
    return _FORM + base64.b85encode(zlib.compress(json.dumps(cells, sort_keys=True).encode())).decode()


def unpack(metadata: str) -> dict[str, int]:
    """The cells of a commit; none of a commit that another tool has made."""
    if not metadata.startswith(_FORM):
        return {}
    cells: dict[str, int] = json.loads(zlib.decompress(base64.b85decode(metadata.removeprefix(_FORM))))
    return cells
