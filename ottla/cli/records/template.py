r"""Templates of `consume -o`: '{key} {value.price:>8} {headers}\n', with the fields of `field`.

`{field:<10}` aligns left, `:>10` right; `{{` and `}}` are braces; \n, \t, \0 and \xNN are escapes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.cli.records.field import Getter, getter
from ottla.cli.records.input import unescaped
from ottla.kernel.error import OttlaError

if TYPE_CHECKING:
    from ottla.cli.records.field import Shown

_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|([{}])")
_PAD = re.compile(r"([<>^]?)(\d{1,3})")


def template(source: str, *, null: str, clean: Callable[[str], str] = str) -> Callable[[Shown], str]:
    """Return the function that formats a record. `null` stands for a null; `clean` filters text from the record."""
    source = unescaped(source)
    pieces: list[str | tuple[Getter, str]] = []
    at = 0
    for found in _PIECE.finditer(source):
        pieces.append(source[at : found.start()])
        at = found.end()
        if found[2]:
            raise OttlaError(f"{source!r}: unmatched {found[2]}; for the character itself, write {found[2] * 2}")
        if found[1] is None:
            pieces.append(found[0][0])
            continue
        path, _, pad = found[1].partition(":")
        if pad and not _PAD.fullmatch(pad):
            raise OttlaError(f"{found[0]}: expected a width after the colon, such as :>8 or :<20")
        pieces.append((getter(path.strip()), pad))
    pieces.append(source[at:])

    def fill(record: Shown) -> str:
        return "".join(
            each if isinstance(each, str) else format(clean(_shown(each[0](record), null)), each[1]) for each in pieces
        )

    return fill


def _shown(value: Any, null: str) -> str:
    if value is None:
        return null
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
