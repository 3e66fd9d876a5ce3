r"""Templates of `consume -o`: '{key} {value.price:>8} {headers}\n', with the fields of `field`.

`{field:<10}` aligns left, `:>10` right; `{{` and `}}` are braces; \n, \t, \0 and \xNN are escapes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.cli.records.field import Getter, getter, without_surrogates
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
    for match in _PIECE.finditer(source):
        pieces.append(source[at : match.start()])
        at = match.end()
        if match[2]:
            raise OttlaError(f"{source!r}: unmatched {match[2]}; for the character itself, write {match[2] * 2}")
        if match[1] is None:
            pieces.append(match[0][0])
            continue
        path, _, pad = match[1].partition(":")
        if pad and not _PAD.fullmatch(pad):
            raise OttlaError(f"{match[0]}: expected a width after the colon, such as :>8 or :<20")
        pieces.append((getter(path.strip()), pad))
    pieces.append(source[at:])

    def fill(record: Shown) -> str:
        return "".join(
            piece if isinstance(piece, str) else format(clean(_shown(piece[0](record), null)), piece[1])
            for piece in pieces
        )

    return fill


def _shown(value: Any, null: str) -> str:
    if value is None:
        return null
    return without_surrogates(
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    )
