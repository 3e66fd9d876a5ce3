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


def _we_speak_too(left: Any, right: Any) -> bool:
    return right is not None or left is None


ALLOWED = [
    Allowed(
        ".*",
        r".*\.(error_message|batch_index_error_message)",
        "The words are for people, and no client decides by them; but where Apache says something, so do we.",
        _we_speak_too,
    ),
    Allowed(
        "first",
        ".*",
        "Apache makes the topic after it answered, we before: the client finds it a moment sooner.",
        lambda left, right: left[0] == 3 and right[0] == 0,
    ),
    Allowed(
        "(Join|Sync)Group v.",
        "",
        "A member asks again, or goes, while its first question waits. Apache never answers the first, we do.",
        lambda left, right: left == "silence" and isinstance(right, dict) and right["error_code"] in (25, 27),
    ),
    Allowed(
        "StreamsGroupHeartbeat v.",
        r"\.(active|standby|warmup)_tasks",
        "A member that owns something else than it has is told again: the answer that told it may be lost.",
        lambda left, right: left is None,
    ),
    Allowed(
        "StreamsGroupHeartbeat v.",
        r"\.status\[\d+\]\.status_detail",
        "Apache names missing internal topics in the order of a hash table, we in the order of the topology.",
        lambda left, right: sorted(re.findall(r"[\w.=-]+", left)) == sorted(re.findall(r"[\w.=-]+", right)),
    ),
    Allowed(
        "ApiVersions v.",
        "",
        "A header that is not of the version it names: Apache closes, we say which versions there are.",
        lambda left, right: left == "closed",
    ),
    Allowed(
        "AddPartitionsToTxn v.",
        "",
        "A batch of no transactions: Apache never answers it.",
        lambda left, right: left == "silence",
    ),
    Allowed(
        "DescribeShareGroupOffsets v.",
        "",
        "Of a partition that is not there Apache asks for the state again and again; we say that it is not there.",
        lambda left, right: left == "silence",
    ),
    Allowed(
        "DescribeShareGroupOffsets v.",
        r".*\.start_offset",
        "Apache stores a start that moved with the next write, we with the one that moves it (decision 0132).",
        lambda left, right: left < right,
    ),
    Allowed(
        "IncrementalAlterConfigs v.",
        r"\.responses\[0\]\.error_(code|message)",
        "An operation that does not exist: Apache fails with UNKNOWN_SERVER_ERROR, we say INVALID_REQUEST.",
        lambda left, right: left in (-1, None) and right not in (0, None),
    ),
]


def allowed(what: str, path: str, left: Any, right: Any) -> bool:
    return any(
        re.fullmatch(one.what, what) and re.fullmatch(one.path, path) and one.holds(left, right) for one in ALLOWED
    )
