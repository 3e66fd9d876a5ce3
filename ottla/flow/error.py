"""The errors of plans and engines. Each names the line of the user's program if it is known."""

from __future__ import annotations

from ottla.flow.where import Where
from ottla.kernel.error import OttlaError


class TopologyError(OttlaError):
    """A plan that cannot run or would run wrong (Kafka Streams: TopologyException, IllegalArgumentException)."""

    def __init__(self, message: str, where: Where | None = None) -> None:
        super().__init__(f"{message} ({where})" if where else message)
        self.where = where


class StreamsError(OttlaError):
    """A record could not be processed and the program must stop (Kafka Streams: StreamsException)."""


class SerdeError(OttlaError):
    """A serde cannot write a value, or cannot read bytes."""
