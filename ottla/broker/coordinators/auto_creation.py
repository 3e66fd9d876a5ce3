"""Creates the missing topics that clients' Metadata requests name (`auto.create.topics.enable`).

Rules:
- No response waits for a topic: it says UNKNOWN_TOPIC_OR_PARTITION, and the client asks again, as with Apache Kafka. So
  no client waits for a topic that cannot be created, and clients ask again until it can.
- At most `CREATING_MAX` topics are being created at a time. Others wait for their client to ask again.
- The node logs a failure once for each topic and reason; of topics that one answer refuses for one reason, the first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from ottla.broker.coordinators.coordinators import Coordinators
from ottla.broker.coordinators.parts import CreateTopics
from ottla.broker.coordinators.topic_spec import missing_topic
from ottla.broker.runtime import Runtime
from ottla.kernel.error import ErrorCode, KafkaError

_log = logging.getLogger("ottla.broker")
CREATING_MAX = 1000


class AutoCreation:
    """The topics that a node creates for its clients."""

    def __init__(
        self,
        runtime: Runtime,
        create_topics: CreateTopics,
        coordinators_of: Callable[[str], Coordinators[Any] | None],
    ) -> None:
        self._runtime = runtime
        self._create_topics = create_topics
        #: The coordinators whose records a topic holds: they say what it is like.
        self._coordinators_of = coordinators_of
        self._creating: set[str] = set()
        #: Topic -> the reason of a failure that was logged, for at most `CREATING_MAX` topics.
        self._logged: dict[str, str] = {}

    def create(self, names: Iterable[str]) -> None:
        """Begin to create these topics, whose names are legal, except those that are being created."""
        new = [name for name in names if name not in self._creating][: CREATING_MAX - len(self._creating)]
        if not new:
            return
        self._creating.update(new)
        settings = self._runtime.settings
        kinds = ((name, self._coordinators_of(name)) for name in new)
        specs = [missing_topic(name, settings) if kind is None else kind.new_topic() for name, kind in kinds]
        self._create_topics(specs, lambda failed: self._done(new, failed))

    def _done(self, names: list[str], failed: dict[str, KafkaError]) -> None:
        self._creating.difference_update(names)
        untold: dict[str, list[str]] = {}
        for name in names:
            error = failed.get(name)
            # A topic that is there and that this node has not followed yet has not failed.
            if error is None or error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                self._logged.pop(name, None)
            elif self._logged.get(name) != (reason := error.message or error.code.name):
                if len(self._logged) >= CREATING_MAX:
                    self._logged.clear()
                self._logged[name] = reason
                untold.setdefault(reason, []).append(name)
        for reason, (first, *others) in untold.items():
            more = f" and {len(others)} more" if others else ""
            _log.warning("cannot create topic %s%s, for which a client has asked: %s", first, more, reason)
