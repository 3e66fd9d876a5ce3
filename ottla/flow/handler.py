"""What becomes of a record that cannot be read, processed or written: stop, go on, or go on with a dead letter.

    handlers = Handlers(deserialization=log_and_continue, dead_letter_topic="bad-payments")

A handler is `(ErrorContext, error) -> Response`. It sees the raw bytes of the source record.

What becomes of a program that runs is a `State`; a host asks an error handler for an `ErrorResponse`.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ottla.flow.record import Headers, Output

#: Headers of a dead letter (KIP-1034).
_PREFIX = "__streams.errors."


class Action(Enum):
    """What the task does after an error."""

    RESUME = "resume"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class ErrorContext:
    """The record and the node of an error. `record` is what the node was given; key and value are the source's
    bytes.
    """

    task_id: str
    node: str
    topic: str | None
    partition: int
    offset: int
    timestamp: int
    headers: Headers
    raw_key: bytes | None
    raw_value: bytes | None
    record: Any = None


@dataclass(frozen=True, slots=True)
class Response:
    """An action, and records for a dead letter topic."""

    action: Action
    dead_letters: tuple[Output, ...] = ()

    @classmethod
    def resume(cls, *dead_letters: Output) -> Response:
        return cls(Action.RESUME, dead_letters)

    @classmethod
    def fail(cls, *dead_letters: Output) -> Response:
        return cls(Action.FAIL, dead_letters)


Handler = Callable[[ErrorContext, BaseException], Response]


def dead_letter(topic: str, context: ErrorContext, error: BaseException) -> Output:
    """The source record with the error in its headers, as Kafka Streams writes it."""
    stack = "".join(traceback.format_exception(error))
    told = {
        "exception": f"{type(error).__module__}.{type(error).__qualname__}",
        "message": str(error),
        "stacktrace": stack,
        "topic": context.topic or "",
        "partition": str(context.partition),
        "offset": str(context.offset),
    }
    headers = (*context.headers, *((_PREFIX + name, text.encode()) for name, text in told.items()))
    return Output(topic, context.raw_key, context.raw_value, max(context.timestamp, 0), headers, None, context.raw_key)


def log_and_fail(context: ErrorContext, error: BaseException) -> Response:
    """Stop the task; the error is raised out of it."""
    return Response.fail()


def log_and_continue(context: ErrorContext, error: BaseException) -> Response:
    """Drop the record (only the branch that failed) and go on."""
    return Response.resume()


@dataclass(frozen=True, slots=True)
class Handlers:
    """A handler for each kind of error. With a dead letter topic, a response that brings no dead letter gets one."""

    deserialization: Handler = log_and_fail
    processing: Handler = log_and_fail
    production: Handler = log_and_fail
    dead_letter_topic: str | None = None

    def respond(self, handler: Handler, context: ErrorContext, error: BaseException) -> Response:
        response = handler(context, error)
        if self.dead_letter_topic is None or response.dead_letters:
            return response
        return Response(response.action, (dead_letter(self.dead_letter_topic, context, error),))


class State(Enum):
    """CREATED, then REBALANCING until all tasks are open, RUNNING, and at the end NOT_RUNNING or ERROR."""

    CREATED = "CREATED"
    REBALANCING = "REBALANCING"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    NOT_RUNNING = "NOT_RUNNING"
    PENDING_ERROR = "PENDING_ERROR"
    ERROR = "ERROR"


class ErrorResponse(Enum):
    """What an error handler answers: open the tasks of that worker again from what was committed, or end."""

    REPLACE_THREAD = "REPLACE_THREAD"
    SHUTDOWN_APPLICATION = "SHUTDOWN_APPLICATION"
