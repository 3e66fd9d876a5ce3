"""Operators as functions: a node takes a record in parts and calls the functions of its children.

A chain of operators costs one call each, without an object for a record between them. `Fused` operators make such a
function; any other processor is called with a `Record` (`context.py`).

Rules:
- A function catches what its own user's function raises, and nothing that its children do.
- A function never fails but by `Failed`, which stops the task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ottla.flow.processor import Context
from ottla.flow.record import Headers

if TYPE_CHECKING:
    from ottla.flow.engine import Task

#: (key, value, timestamp, headers)
Push = Callable[[Any, Any, int, Headers], None]


class Node(Protocol):
    """What a fused operator is given: its children, as functions, and what happens to errors."""

    #: All children, in their order.
    emit: Push
    #: The same for a record with another timestamp than the one that the node was given.
    emit_at: Push

    def child(self, name: str) -> Push:
        """A child."""

    def failed(self, key: Any, value: Any, timestamp: int, headers: Headers, error: Exception) -> None:
        """Ask the processing handler what an error of the operator means. Raises Failed, or the record is dropped."""

    def drop(self) -> None:
        """Count a record as dropped."""


class Fused:
    """An operator that is a function."""

    def init(self, context: Context) -> None:
        """Called once for a task, before `fused`."""

    def fused(self, node: Node) -> Push:
        """The function. `node.emit` is final when this is called."""
        raise TypeError(f"{type(self).__name__} has no function")


def together(pushes: Sequence[Push]) -> Push:
    """All of them, one after another."""
    if len(pushes) == 1:
        return pushes[0]
    if not pushes:
        return _nothing
    if len(pushes) == 2:
        first, second = pushes

        def both(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            first(key, value, timestamp, headers)
            second(key, value, timestamp, headers)

        return both
    several = tuple(pushes)

    def each(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        for push in several:
            push(key, value, timestamp, headers)

    return each


def at(task: Task, emit: Push) -> Push:
    """`emit`, with the record's timestamp as the task's: what children write to their stores without a time of its own
    is logged with it.
    """

    def push(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        before, task.timestamp = task.timestamp, timestamp
        emit(key, value, timestamp, headers)
        task.timestamp = before

    return push


def _nothing(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
    """A node without children."""
