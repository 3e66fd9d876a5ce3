"""What the log of a coordinator has refused: each trouble is logged once, and so is its end.

Rules:
- A log that takes no records at all (a full disk, too few in-sync replicas) is logged until it takes some, or until the
  reason changes. A coordinator that is loaded again after such a failure continues with these refusals.
- Records that are too large are the trouble of one kind of step, a request or a deadline. They are logged once, until a
  step of that kind appends.
"""

from __future__ import annotations

import logging
from typing import Any

from ottla.coordinator.contract import Called
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition

_log = logging.getLogger("ottla.broker")
#: The log refuses these records before anything is written, and may accept others.
TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class Refusals:
    """The refusals of one partition's log that are logged and not over."""

    def __init__(self, tp: TopicPartition) -> None:
        self._tp = tp
        #: Why the log takes no records, "" while it does.
        self._reason = ""
        #: The kinds of steps whose records were too large.
        self._too_large: set[str] = set()

    def refused(self, event: Any, error: KafkaError) -> None:
        """Log that the records of this step cannot be appended, unless that is known."""
        if error.code in TOO_LARGE:
            kind = _kind(event)
            if kind in self._too_large:
                return
            self._too_large.add(kind)
        elif error.message == self._reason:
            return
        else:
            self._reason = error.message
        _log.error("cannot append to %s: %s", self._tp, error.message)

    def appended(self, event: Any) -> None:
        """Note that all records of this step were appended."""
        if self._reason:
            _log.info("can append to %s again", self._tp)
            self._reason = ""
        if self._too_large:
            self._too_large.discard(_kind(event))


def _kind(event: Any) -> str:
    return type(event.request if isinstance(event, Called) else event).__name__
