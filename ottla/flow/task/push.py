"""Operators as functions: a node takes the parts of a record and calls the functions of its children.

A chain of operators costs one call per operator and makes no `Record` objects. `Fused` operators make such a function;
all other processors are called with a `Record` (`context.py`).

Rules:
- A function catches the errors of its own user's function, but not those of its children.
- A function raises nothing but `Failed`, which stops the task.
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
    """The node of a fused operator: its children as functions, and its error handling."""

    #: Calls all children, in order.
    emit: Push
    #: As `emit`, for a record whose timestamp differs from that of the node's input.
    emit_at: Push

    def child(self, name: str) -> Push:
        """The child with this name."""

    def on_error(self, key: Any, value: Any, timestamp: int, headers: Headers, error: Exception) -> None:
        """Call the processing handler with an error of the operator. Raises Failed, or drops the record."""

    def drop(self) -> None:
        """Count a record as dropped."""


class Fused:
    """An operator that compiles to a function."""

    def init(self, context: Context) -> None:
        """Initialize the operator, before `fused` is called."""

    def fused(self, node: Node) -> Push:
        """Make the function. `node.emit` is final by then."""
        raise TypeError(f"{type(self).__name__} has no function")


def call_all(pushes: Sequence[Push]) -> Push:
    """A function that calls all of them, one after another."""
    if len(pushes) == 1:
        return pushes[0]
    if not pushes:
        return _no_children
    if len(pushes) == 2:
        first, second = pushes

        def both(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            first(key, value, timestamp, headers)
            second(key, value, timestamp, headers)

        return both
    several = tuple(pushes)

    def call_each(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        for push in several:
            push(key, value, timestamp, headers)

    return call_each


def at(task: Task, emit: Push) -> Push:
    """`emit` with the task's timestamp set to the record's, so that store writes of the children that have no time of
    their own are logged with it.
    """

    def push(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        before, task.timestamp = task.timestamp, timestamp
        emit(key, value, timestamp, headers)
        task.timestamp = before

    return push


def _no_children(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
    """The `emit` of a node without children."""
