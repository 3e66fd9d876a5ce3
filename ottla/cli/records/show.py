r"""Formatting of a record as a line: decorated on a terminal, bare in a pipe, whole in JSON, or by a template.

Rules:
- On a terminal, control characters in a record (escape sequences, carriage returns) are shown as escapes such as \x1b.
- A null differs from the text "null": it is (null) on a terminal, \N in a pipe, or the text of --null.
- With --json, a key or value that is a JSON object or list is printed as one. If its bytes are not compact JSON,
  key_text or value_text has them, so that `ottla produce --format json` restores the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.cli.records.field import as_json, parsed, text
from ottla.cli.screen import visible

if TYPE_CHECKING:
    from ottla.cli.records.field import Shown

Write = Callable[["Shown"], str]


def writer(*, keys: bool, topics: tuple[str, ...], null: str | None, output: str | None) -> Write:
    """Return the function that formats records for stdout."""
    from ottla.cli import screen

    terminal = screen.on_terminal()
    none = null if null is not None else ("(null)" if terminal else "\\N")
    if output is not None:
        from ottla.cli.records.template import template

        return template(output, null=none, clean=visible if terminal else str)
    if terminal:
        return _decorated(max(map(len, topics)) if len(topics) > 1 else 0, none)
    if keys:
        return lambda record: f"{_text_or(text(record.key), none)}\t{_text_or(text(record.value), none)}\n"
    return lambda record: f"{_text_or(text(record.value), none)}\n"


def _text_or(content: str | None, none: str) -> str:
    return none if content is None else content


def _decorated(topic_width: int, none: str) -> Write:
    from ottla.cli import screen

    def line(record: Shown) -> str:
        place = f"{record.topic:<{topic_width}} " * bool(topic_width) + f"{f'{record.partition}:{record.offset}':<8}"
        parts = [screen.styled(f"{place} {screen.instant(record.timestamp) or '-'}", dim=True)]
        if record.key is not None:
            parts.append(screen.styled(visible(text(record.key) or ""), "cyan"))
        value = text(record.value)
        parts.append(visible(value) if value is not None else screen.styled(none, dim=True))
        for name, content in record.headers:
            parts.append(screen.styled(visible(f"{name}={_text_or(text(content), none)}"), dim=True))
        return "  ".join(parts) + "\n"

    return line


def json_line(record: Shown) -> str:
    """Format a whole record as a line of JSON."""
    return json.dumps(whole(record), ensure_ascii=False, separators=(",", ":")) + "\n"


def whole(record: Shown) -> dict[str, Any]:
    """Return a record as a JSON object."""
    document: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    for name, content in (("key", record.key), ("value", record.value)):
        document[name], exact = _structured(content)
        if exact is not None:
            document[f"{name}_text"] = exact
    document["headers"] = [[name, as_json(content)] for name, content in record.headers]
    return document


def _structured(content: bytes | None) -> tuple[Any, str | None]:
    """Return (JSON value for the content, its exact text if the value cannot reproduce it)."""
    if content is None or content.lstrip()[:1] not in (b"{", b"["):
        return as_json(content), None
    document = parsed(content)
    if not isinstance(document, dict | list) or (isinstance(document, dict) and document.keys() == {"base64"}):
        return as_json(content), None
    try:
        if json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() == content:
            return document, None
        return document, content.decode()
    except (UnicodeError, ValueError, RecursionError):
        return as_json(content), None
