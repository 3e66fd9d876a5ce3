r"""JAAS lines as Kafka reads them: `sasl.jaas.config` of a listener's mechanism. Pure text.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" password="s" user_ann="t";

Rules:
- A line names one login module, then its control flag and options NAME=VALUE, and ends with a semicolon. Comments and
  line ends are Java's.
- A value may be quoted, with \\" and \\\\ as escapes.
- No error repeats a value: it may be a secret.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ottla.kernel.error import OttlaError

_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(
    r"""\s+|//[^\n]*|\#[^\n]*|/\*.*?\*/"""
    r"""|"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'|(?P<mark>[=;{}])|(?P<word>[^\s"'=;{}]+)""",
    re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_USER = "user_"
#: Prefixes punctuation tokens, so that a quoted "=" is a value; no setting contains it.
_MARK = "\0"
_EQUALS, _END = _MARK + "=", _MARK + ";"


class JaasEntry(NamedTuple):
    """A login module and its options."""

    module: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"JaasEntry({self.module}, [hidden])"

    @property
    def users(self) -> dict[str, str]:
        """User -> password, from the options `user_NAME` (PlainLoginModule)."""
        return {name[len(_USER) :]: value for name, value in self.options.items() if name.startswith(_USER)}


def parse_jaas(name: str, text: str) -> JaasEntry:
    """Parse the single entry of a JAAS line. OttlaError names the setting `name` and repeats no value."""
    tokens = _tokens(name, text)
    if len(tokens) < 3 or tokens[1].lower() not in _FLAGS:
        raise OttlaError(f'{name}: a JAAS line is MODULE required NAME="value" ...; (the flag is required)')
    options: dict[str, str] = {}
    at = 2
    while at < len(tokens) and tokens[at] != _END:
        if at + 2 >= len(tokens) or tokens[at + 1] != _EQUALS or tokens[at + 2].startswith(_MARK):
            raise OttlaError(f'{name}: option {len(options) + 1} of the JAAS line is not NAME="value"')
        options[tokens[at]] = tokens[at + 2]
        at += 3
    if at == len(tokens):
        raise OttlaError(f"{name}: the JAAS line does not end with a semicolon")
    if at + 1 < len(tokens):
        raise OttlaError(f"{name}: there is more than one login module; a mechanism has one")
    return JaasEntry(tokens[0], options)


def _tokens(name: str, text: str) -> list[str]:
    found: list[str] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise OttlaError(f"{name}: a quote of the JAAS line is not closed (character {at + 1})")
        at = match.end()
        quoted = match["double"] if match["double"] is not None else match["single"]
        if quoted is not None:
            found.append(_ESCAPED.sub(lambda each: _ESCAPES.get(each[1], each[1]), quoted))
        elif match["word"]:
            found.append(match["word"])
        elif match["mark"]:
            found.append(_MARK + match["mark"])
    return found
