r"""`ssl.principal.mapping.rules`: users' names from distinguished names (KIP-371), as Kafka's SslPrincipalMapper.

    RULE:^CN=(.*?),OU=orders.*$/$1/L,DEFAULT

Rules:
- Rules are tried in turn; the first whose pattern matches the whole name gives the user. DEFAULT gives the name itself.
- `$1` is a group, L and U turn the result into small or large letters, "\/" stands for a slash.
- A reference to a group that the pattern has not is text.
"""

from __future__ import annotations

import re

from ottla.kernel.error import OttlaError

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)")
_PARSER = re.compile(_RULE)
#: Java writes a named group (?<name>...).
_NAMED = re.compile(r"\(\?<(?![=!])")
_PIECE = re.compile(r"\\(.)|\$(\d+)|\$\{(\w+)\}", re.DOTALL)


class _Rule:
    def __init__(self, pattern: str, replacement: str, case: str) -> None:
        self._pattern = re.compile(_NAMED.sub("(?P<", pattern))
        self._replacement = replacement
        self._case = case

    def apply(self, name: str) -> str | None:
        if self._pattern.fullmatch(name) is None:
            return None
        # As Java's replaceAll: what matches again at the end is replaced again.
        found = self._pattern.sub(self._expanded, name)
        return {"L": found.lower(), "U": found.upper()}.get(self._case, found)

    def _expanded(self, match: re.Match[str]) -> str:
        def piece(each: re.Match[str]) -> str:
            if each[1] is not None:
                return each[1]
            if each[3] is not None:
                return match[each[3]] or ""
            return _referred(match, each[2])

        return _PIECE.sub(piece, self._replacement)


def _referred(match: re.Match[str], digits: str) -> str:
    """As many of the digits as name a group are the reference; the others are text."""
    groups = match.re.groups
    for length in range(len(digits), 0, -1):
        if int(digits[:length]) <= groups and (length == 1 or digits[0] != "0"):
            return (match[int(digits[:length])] or "") + digits[length:]
    return "$" + digits


class PrincipalMapping:
    """The rules of a listener. OttlaError for one that cannot be read."""

    def __init__(self, text: str) -> None:
        self._rules: list[_Rule | None] = []
        for found in _SPLITTER.finditer(text.strip()):
            rule = found[1]
            parsed = _PARSER.fullmatch(rule)
            if parsed is None or parsed[5]:
                raise _unreadable(rule, "it is neither DEFAULT nor RULE:PATTERN/REPLACEMENT/[L|U]")
            if parsed[1] is not None:
                self._rules.append(None)
            elif parsed[2] is not None:
                try:
                    self._rules.append(_Rule(parsed[2], parsed[3], parsed[4]))
                except re.error as error:
                    raise _unreadable(rule, str(error)) from error

    def user(self, name: str) -> str | None:
        """The user of a distinguished name; None if no rule matches it."""
        for rule in self._rules:
            found = name if rule is None else rule.apply(name)
            if found is not None:
                return found
        return None


def _unreadable(rule: str, why: str) -> OttlaError:
    return OttlaError(f"ssl.principal.mapping.rules: {rule!r} cannot be read: {why}")
