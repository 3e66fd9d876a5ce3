r"""Names of topics and groups as people give them: a name, a glob (orders.*), a regular expression (/^orders-\d+$/).

A name that is there is itself, whatever is in it. A pattern that fits nothing is an error, as is an absent name.
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
    """Does it stand for names rather than for itself?"""
    return bool(_GLOB.search(name)) or (len(name) > 1 and name[0] == name[-1] == "/")


def expand(given: Iterable[str], there: Iterable[str], what: str, *, hidden: Iterable[str] = ()) -> list[str]:
    """The names that are meant, each once, in order. `hidden` names are meant by name only, not by a pattern."""
    names = sorted(there)
    every = {*names, *hidden}
    found: dict[str, None] = {}
    for each in given:
        if each in every:
            found[each] = None
        elif is_pattern(each):
            fits = _compiled(each)
            matched = [name for name in names if fits.match(name)]
            if not matched:
                raise OttlaError(f"no {what} is called like {each}")
            found.update(dict.fromkeys(matched))
        else:
            absent = OttlaError(f"there is no {what} {each}{nearest(each, names, what)}")
            raise absent from KafkaError(_ABSENT[what])
    return list(found)


def _compiled(pattern: str) -> re.Pattern[str]:
    if not (pattern[0] == pattern[-1] == "/" and len(pattern) > 1):
        return re.compile(translate(pattern))
    try:
        # Searched for, as grep does: ^ and $ say where.
        return re.compile(f"(?s:.*?)(?:{pattern[1:-1]})")
    except re.error as error:
        raise click.UsageError(f"{pattern}: it is no regular expression ({error})") from error
