r"""`ssl.principal.mapping.rules`: maps distinguished names to user names (KIP-371), as Kafka's SslPrincipalMapper.

    RULE:^CN=(.*?),OU=orders.*$/$1/L,DEFAULT

Rules:
- Rules are tried in turn; the first whose pattern matches the whole name gives the user. DEFAULT gives the name itself.
- `$1` is a group, L and U convert the result to lower or upper case, "\/" stands for a slash.
- A reference to a group that the pattern does not have is literal text.

`sasl.kerberos.principal.to.local.rules`: maps Kerberos principals to user names.

    RULE:[1:$1@$0](.*@EXAMPLE\.COM)s/@.*///L     one component, in the realm EXAMPLE.COM, in lower case
    RULE:[2:$1-$2]                               service/host@REALM becomes service-host
    DEFAULT                                      the first component, in the default realm

Rules:
- Rules are tried in turn; the first that applies gives the user. A principal to which no rule applies has no user.
- `[n:format]` applies to principals with n components; `$0` is the realm, `$1` and `$2` are the components.
- `(pattern)` must match the whole formatted string, `s/from/to/g` replaces, L and U change the case.
- A resulting name with "/" or "@" is refused, and no other rule is tried.

Matching takes bounded time whatever name a client chooses (docs/decisions/0734). Patterns outside RE2's language
(lookaround, back-references, possessive quantifiers) fall back to Python's `re`, with a warning in the log at startup.

Grammar and order are those of Kafka's KerberosName, KerberosShortNamer and KerberosRule. One check is stricter: a
format that refers to a missing component prevents the start; Kafka starts and then refuses each client.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence

from ottla.kernel.error import OttlaError
from ottla.kernel.re2.pattern import InvalidExpression
from ottla.kernel.re2.search import Search

_log = logging.getLogger("ottla.security")

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)")
_PARSER = re.compile(_RULE)
#: Java writes a named group (?<name>...).
_NAMED = re.compile(r"\(\?<(?![=!])")
_PIECE = re.compile(r"\\(.)|\$(\d+)|\$\{(\w+)\}", re.DOTALL)


class _Rule:
    def __init__(self, pattern: str, replacement: str, case: str) -> None:
        self._pattern = _Pattern(pattern)
        self._replacement = replacement
        self._case = case

    def apply(self, name: str) -> str | None:
        if not self._pattern.matches(name):
            return None
        # As Java's replaceAll: an empty match at the end is replaced, too.
        found = self._pattern.replace(name, self._replacement)
        return {"L": found.lower(), "U": found.upper()}.get(self._case, found)


class _Pattern:
    """A pattern in Java's syntax. re.error if it is invalid."""

    def __init__(self, text: str) -> None:
        self._search: Search | None = None
        try:
            self._search = Search(text)
        except InvalidExpression as why:
            self._backtracking = re.compile(_NAMED.sub("(?P<", text), re.ASCII)
            _log.warning(
                "the pattern %s of a mapping rule is none of RE2's language (%s): a name that is made for it can hold "
                "this node up; write it without lookaround, back-references and possessive quantifiers",
                text,
                why,
            )

    def matches(self, name: str) -> bool:
        """Whether the pattern matches the whole name. InvalidExpression if that takes too much work."""
        return self._backtracking.fullmatch(name) is not None if self._search is None else self._search.matches(name)

    def replace(self, name: str, replacement: str, count: int = 0) -> str:
        """Replace all matches as Java's replaceAll, or the first `count`. InvalidExpression, IndexError."""
        if self._search is not None:
            return self._search.replace(name, lambda found: _expanded(replacement, found.groups, found.text), count)
        return self._backtracking.sub(
            lambda match: _expanded(replacement, match.re.groups, match.__getitem__), name, count
        )


def _expanded(replacement: str, groups: int, text: Callable[[int | str], str | None]) -> str:
    """The replacement of one match, as by Java's replaceAll; `text` gives the text of a group."""

    def piece(each: re.Match[str]) -> str:
        if each[1] is not None:
            return each[1]
        if each[3] is not None:
            return text(each[3]) or ""
        # The longest run of digits that names a group is the reference; the others are literal.
        digits = each[2]
        for length in range(len(digits), 0, -1):
            if int(digits[:length]) <= groups:
                return (text(int(digits[:length])) or "") + digits[length:]
        return "$" + digits

    return _PIECE.sub(piece, replacement)


class PrincipalMapping:
    """The rules of a listener. OttlaError if one is invalid."""

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
        """The user of a distinguished name; None if no rule matches. ValueError if matching takes too much work."""
        for rule in self._rules:
            found = name if rule is None else rule.apply(name)
            if found is not None:
                return found
        return None


def _unreadable(rule: str, why: str) -> OttlaError:
    return OttlaError(f"ssl.principal.mapping.rules: {rule!r} cannot be read: {why}")


# ---- Kerberos

_LOCAL_RULES = "sasl.kerberos.principal.to.local.rules"
_PRINCIPAL = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_LOCAL_RULE = re.compile(
    r"(?P<default>DEFAULT)|RULE:\[(?P<components>\d*):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?P<replace>s/(?P<source>[^/]*)/(?P<target>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?"
)
_REFERENCE = re.compile(r"\$(\d*)")


class NoUser(Exception):
    """A principal maps to no user; the text says why."""


class PrincipalToLocal:
    """The rules of a node. OttlaError if one is invalid."""

    def __init__(self, rules: Sequence[str], default_realm: str) -> None:
        self._rules = [_LocalRule(rule, default_realm) for rule in rules]

    def user(self, principal: str) -> str:
        """The user of a principal such as `ann@EXAMPLE.COM` or `kafka/host@EXAMPLE.COM`. NoUser."""
        match = _PRINCIPAL.fullmatch(principal)
        if match is None:
            if "@" in principal:
                raise NoUser("its name is no name[/host]@REALM")
            return principal
        name, host, realm = match.groups()
        parts = [realm, name] if host is None else [realm, name, host]
        try:
            for rule in self._rules:
                found = rule.apply(parts)
                if found is not None:
                    return found
        except (InvalidExpression, IndexError) as error:
            raise NoUser(f"a rule of {_LOCAL_RULES} cannot be applied to it: {error}") from None
        raise NoUser(f"no rule of {_LOCAL_RULES} applies to it")


class _LocalRule:
    def __init__(self, text: str, default_realm: str) -> None:
        match = _LOCAL_RULE.match(text)
        if match is None or match.end() != len(text) or match["components"] == "":
            raise _unreadable_local(text, "it is neither DEFAULT nor RULE:[n:format](pattern)s/from/to/g/L")
        self._text = text
        self._default_realm = default_realm if match["default"] else None
        self._components = int(match["components"] or 0)
        self._format = match["format"] or ""
        for digits in _REFERENCE.findall(self._format):
            if not digits or int(digits) > self._components:
                raise _unreadable_local(text, f"${digits} is no part of a principal of {self._components} components")
        try:
            self._match = None if match["match"] is None else _Pattern(match["match"])
            self._source = _Pattern(match["source"]) if match["replace"] else None
        except re.error as error:
            raise _unreadable_local(text, str(error)) from error
        self._target = match["target"] or ""
        self._count = 0 if match["all"] else 1
        self._case = match["case"]

    def apply(self, parts: list[str]) -> str | None:
        """The user of [realm, component...]; None if the rule does not apply."""
        if self._default_realm is not None:
            found = parts[1] if parts[0] == self._default_realm else None
        else:
            found = self._replaced(parts)
        if found is None:
            return None
        if "/" in found or "@" in found:
            raise NoUser(f"{self._text} makes {found!r} of it, and a user has no / and no @")
        return {"L": found.lower(), "U": found.upper()}.get(self._case, found)

    def _replaced(self, parts: list[str]) -> str | None:
        if len(parts) - 1 != self._components:
            return None
        base = _REFERENCE.sub(lambda each: parts[int(each[1])], self._format)
        if self._match is not None and not self._match.matches(base):
            return None
        if self._source is None:
            return base
        return self._source.replace(base, self._target, self._count)


def _unreadable_local(rule: str, why: str) -> OttlaError:
    return OttlaError(f"{_LOCAL_RULES}: {rule!r} cannot be read: {why}")
