"""Handlers for records that cannot be read, processed or written: fail, continue, or continue with a dead letter.

    handlers = Handlers(deserialization=log_and_continue, dead_letter_topic="bad-payments")

A handler is `(ErrorContext, error) -> Response`. It sees the raw bytes of the source record.

`State` and `ErrorResponse` are about the running program as a whole.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ottla.flow.check import check_name, checked
from ottla.flow.record import Headers, Output
from ottla.flow.where import here

#: The prefix of a dead letter's headers (KIP-1034).
_PREFIX = "__streams.errors."


class Action(Enum):
    """What the task does after an error: drop the record and resume, or fail."""

    RESUME = "resume"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class ErrorContext:
    """The record and the node of an error (Kafka Streams: ErrorHandlerContext).

    `record` is the node's input, if there is one; `raw_key` and `raw_value` are the bytes of the source record.
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
    """A handler's decision: an action, and records for a dead letter topic."""

    action: Action
    dead_letters: tuple[Output, ...] = ()

    @classmethod
    def resume(cls, *dead_letters: Output) -> Response:
        """Drop the record, write the dead letters, and resume."""
        return cls(Action.RESUME, dead_letters)

    @classmethod
    def fail(cls, *dead_letters: Output) -> Response:
        """Fail the task."""
        return cls(Action.FAIL, dead_letters)


Handler = Callable[[ErrorContext, BaseException], Response]


def dead_letter(topic: str, context: ErrorContext, error: BaseException) -> Output:
    """The source record with the error in its headers, as Kafka Streams writes it."""
    stack = "".join(traceback.format_exception(error))
    fields = {
        "exception": f"{type(error).__module__}.{type(error).__qualname__}",
        "message": str(error),
        "stacktrace": stack,
        "topic": context.topic or "",
        "partition": str(context.partition),
        "offset": str(context.offset),
    }
    headers = (*context.headers, *((_PREFIX + name, text.encode()) for name, text in fields.items()))
    return Output(topic, context.raw_key, context.raw_value, max(context.timestamp, 0), headers, None, context.raw_key)


def log_and_fail(context: ErrorContext, error: BaseException) -> Response:
    """Fail the task with the error (Kafka Streams: LogAndFail)."""
    return Response.fail()


def log_and_continue(context: ErrorContext, error: BaseException) -> Response:
    """Drop the record at the failed node and continue (Kafka Streams: LogAndContinue). Other branches keep it. The host
    logs the error; the engine has no log.
    """
    return Response.resume()


@checked
@dataclass(frozen=True, slots=True)
class Handlers:
    """A handler for each kind of error. With `dead_letter_topic`, a response without dead letters gets one: the source
    record with the error in its headers. Global stores write none, because every worker reads their topics from the
    beginning: a dropped record is logged.
    """

    deserialization: Handler = log_and_fail
    processing: Handler = log_and_fail
    production: Handler = log_and_fail
    dead_letter_topic: str | None = None

    def __post_init__(self) -> None:
        if self.dead_letter_topic is not None:
            check_name(self.dead_letter_topic, "dead_letter_topic", here())

    @property
    def write_any_topic(self) -> bool:
        """Whether a handler is the program's own, which may write dead letters to any topic."""
        given = (self.deserialization, self.processing, self.production)
        return any(handler not in (log_and_fail, log_and_continue) for handler in given)

    def respond(self, handler: Handler, context: ErrorContext, error: BaseException) -> Response:
        """Call a handler and add the dead letter."""
        response = handler(context, error)
        if not isinstance(response, Response):
            raise TypeError(f"it returned {response!r} (expected a Response)")
        if self.dead_letter_topic is None or response.dead_letters:
            return response
        return Response(response.action, (dead_letter(self.dead_letter_topic, context, error),))


class State(Enum):
    """The state of a program (Kafka Streams: KafkaStreams.State): CREATED, REBALANCING until all tasks are open,
    RUNNING, and at the end NOT_RUNNING or ERROR.
    """

    CREATED = "CREATED"
    REBALANCING = "REBALANCING"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    NOT_RUNNING = "NOT_RUNNING"
    PENDING_ERROR = "PENDING_ERROR"
    ERROR = "ERROR"


class ErrorResponse(Enum):
    """The result of `Application.on_error`'s handler: reopen the failed worker's tasks from the last commit, or end the
    program (Kafka Streams: StreamThreadExceptionResponse).
    """

    REPLACE_THREAD = "REPLACE_THREAD"
    SHUTDOWN_APPLICATION = "SHUTDOWN_APPLICATION"
