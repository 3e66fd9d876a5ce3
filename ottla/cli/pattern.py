r"""Names of topics and groups on the command line: a name, a glob (orders.*), a regular expression (/^orders-\d+$/).

An existing name always stands for itself. A pattern that matches nothing is an error, like a missing name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate

import click

from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.operations.nearest import nearest

_GLOB = re.compile(r"[*?\[]")
#: What a cluster answers when it is asked for a name that is not there.
_ABSENT = {"topic": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "group": ErrorCode.GROUP_ID_NOT_FOUND}


def is_pattern(name: str) -> bool:
    """Whether the text is a glob or a regular expression."""
    return bool(_GLOB.search(name)) or (len(name) > 1 and name[0] == name[-1] == "/")


def expand(given: Iterable[str], there: Iterable[str], what: str, *, hidden: Iterable[str] = ()) -> list[str]:
    """Return the matching names, each once, in order. Only an exact name selects a `hidden` one, not a pattern."""
    names = sorted(there)
    every = {*names, *hidden}
    selected: dict[str, None] = {}
    for text in given:
        if text in every:
            selected[text] = None
        elif is_pattern(text):
            fits = _compiled(text)
            matched = [name for name in names if fits.match(name)]
            if not matched:
                raise OttlaError(f"no {what} matches {text}")
            selected.update(dict.fromkeys(matched))
        else:
            absent = OttlaError(f"there is no {what} {text}{nearest(text, names, what)}")
            raise absent from KafkaError(_ABSENT[what])
    return list(selected)


def _compiled(pattern: str) -> re.Pattern[str]:
    if not (pattern[0] == pattern[-1] == "/" and len(pattern) > 1):
        return re.compile(translate(pattern))
    try:
        # Match anywhere in the name, as grep does; ^ and $ anchor.
        return re.compile(f"(?s:.*?)(?:{pattern[1:-1]})")
    except re.error as error:
        raise click.UsageError(f"invalid regular expression {pattern}: {error}") from error
