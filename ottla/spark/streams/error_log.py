"""The errors with which a program continues, in the log of its workers."""

from __future__ import annotations

import logging
from dataclasses import replace

from ottla.flow.handler import ErrorContext, Handler, Handlers, Response, log_and_continue

log = logging.getLogger(__name__)


def with_log(handlers: Handlers) -> Handlers:
    """The handlers, with a `log_and_continue` that logs."""
    return replace(
        handlers,
        deserialization=_logged(handlers.deserialization),
        processing=_logged(handlers.processing),
        production=_logged(handlers.production),
    )


def _logged(handler: Handler) -> Handler:
    return _continue if handler is log_and_continue else handler


def _continue(context: ErrorContext, error: BaseException) -> Response:
    if context.topic:
        where = f"{context.topic}-{context.partition} at offset {context.offset}"
    else:  # a record that waited for a match, or an output that a broker rejects
        lost = f"at a position that is not known, time {context.timestamp}"
        where = "no input record" if context.raw_value is None else lost
    log.warning(
        "task %s drops a record at %s (%s): %s: %s",
        *(context.task_id, context.node, where, type(error).__name__, error),
    )
    return log_and_continue(context, error)
