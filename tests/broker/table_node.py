"""A call to a node that is a table of its parts, for tests of what handlers answer."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

from ottla.broker.call.reply import Later
from ottla.kernel.error import ErrorCode, KafkaError


def called(version: int = 99, **node: Any) -> Any:
    """A call at this version to a node of these parts; whatever takes turns has them at once."""
    turns: list[Any] = []
    connection = Mock(closed=False, turns=Mock(wait=turns.append))
    call = Mock(version=version, connection=connection, node=Mock(**node))
    call.turns = turns
    return call


def done(reply: Any, call: Any) -> Any:
    """The response, after all turns."""
    while isinstance(reply, Later) and not reply.resolved:
        call.turns.pop(0)()
    return reply.value if isinstance(reply, Later) else reply


def leads(**partitions: Any) -> Any:
    """`leader_of` of a node that leads partition 0 of these topics."""

    def leader_of(topic: str, index: int) -> Any:
        if topic not in partitions or index:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "not here" if index else "")
        return partitions[topic]

    return leader_of
