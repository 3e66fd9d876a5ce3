"""The differences from Apache that are allowed, each with its reason. Paths are matched whole."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Allowed:
    """A difference at `path` of the replies named `what` (both regular expressions), if `holds` of both values."""

    what: str
    path: str
    reason: str
    holds: Callable[[Any, Any], bool] = lambda left, right: True


def _both_or_neither(left: Any, right: Any) -> bool:
    return (left is None) == (right is None)


ALLOWED = [
    Allowed(
        ".*",
        r".*\.(error_message|batch_index_error_message)",
        "The words are for people, and no client reads them; but where Apache says something, so do we.",
        _both_or_neither,
    ),
]


def allowed(what: str, path: str, left: Any, right: Any) -> bool:
    return any(
        re.fullmatch(one.what, what) and re.fullmatch(one.path, path) and one.holds(left, right) for one in ALLOWED
    )
