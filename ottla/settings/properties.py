"""Java's .properties files, such as `server.properties`, read and written like java.util.Properties.

Rules:
- `=`, `:` or white space ends a key; a backslash makes any of these part of the key.
- `#` or `!` at the start of a line makes it a comment; a backslash at the end of a line continues it on the next line.
- The last value of a repeated key wins.
"""

import re
from collections.abc import Iterator, Mapping

from ottla.kernel.error import OttlaError

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\"}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(u)|(.?))", re.DOTALL)
_KEY_END = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)


def read(text: str) -> dict[str, str]:
    """Parse the keys and values of a file. Raise OttlaError for an escape that Java rejects."""
    settings: dict[str, str] = {}
    for number, line in _logical_lines(text):
        match = _KEY_END.match(line)
        assert match is not None
        key = match.group()
        rest = line[len(key) :].lstrip(_BLANK)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANK)
        settings[_plain(key, number)] = _plain(rest, number)
    return settings


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number of the first line, the line with its continuations), without comments and blank lines."""
    joined: str | None = None
    first = 0
    for number, natural in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = natural.lstrip(_BLANK)
        if joined is None:
            if not line or line[0] in "#!":
                continue
            first, joined = number, ""
        joined += line
        # The last of an odd number of backslashes escapes the end of the line.
        if (len(line) - len(line.rstrip("\\"))) % 2:
            joined = joined[:-1]
            continue
        yield first, joined
        joined = None
    if joined is not None:
        yield first, joined


def _plain(text: str, number: int) -> str:
    if "\\" not in text:
        return text

    def unescape(match: re.Match[str]) -> str:
        code, broken, other = match.groups()
        if broken:
            raise OttlaError(f"line {number}: \\u needs four hexadecimal digits; write \\\\ for a backslash")
        return chr(int(code, 16)) if code else _ESCAPES.get(other, other)

    plain = _ESCAPE.sub(unescape, text)
    # A character outside the basic multilingual plane is written as a surrogate pair.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def write(settings: Mapping[str, str], comment: str = "") -> str:
    """Write a file that `read` and Java read back unchanged."""
    lines = [f"# {line}" for line in comment.splitlines()]
    lines += [f"{_escaped(key, key=True)}={_escaped(value, key=False)}" for key, value in settings.items()]
    return "".join(f"{line}\n" for line in lines)


def _escaped(text: str, *, key: bool) -> str:
    marks = " =:#!" if key else ""
    out = "".join(
        _WRITTEN.get(character)
        or (f"\\{character}" if character in marks else character if " " <= character <= "~" else _unicode(character))
        for character in text
    )
    return "\\" + out if out.startswith(" ") else out


def _unicode(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[index]:02X}{units[index + 1]:02X}" for index in range(0, len(units), 2))
