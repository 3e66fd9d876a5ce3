"""The error that stops a task."""

from __future__ import annotations

from ottla.flow.error import StreamsError
from ottla.flow.handler import ErrorContext, Handler, Handlers, Response
from ottla.flow.record import Output
from ottla.flow.topology import Topology


class Failed(StreamsError):
    """A handler chose to fail. The error passes through all processors upstream."""


def response_of(
    topology: Topology, handlers: Handlers, handler: Handler, context: ErrorContext, error: BaseException
) -> Response:
    """Call a handler. Raises Failed if the handler itself fails (Kafka Streams: fatal user code error)."""
    try:
        return handlers.respond(handler, context, error)
    except Exception as second:
        first = failure_of(topology, context, error)
        raise Failed(f"{first}; the error handler failed too: {type(second).__name__}: {second}") from second


def failure_of(topology: Topology, context: ErrorContext, error: BaseException) -> Failed:
    """The error in one sentence: the node, the line that made it, and the record."""
    for nodes in (topology.processors, topology.sinks, topology.sources):
        node = nodes.get(context.node)
        if node is not None:
            origin = f" ({node.where})"
            break
    else:
        origin = ""
    if context.topic:
        position = f"{context.topic}-{context.partition} at offset {context.offset}"
    elif isinstance(context.record, Output):  # several input records may have made an output that a broker rejects
        position = f"an output to {context.record.topic}"
    elif context.raw_value is not None:  # only the store of a join still has it
        position = f"a record of time {context.timestamp} that waited for a match"
    else:
        position = "a punctuator"
    hint = ""
    if context.node in topology.sources:
        hint = "; Handlers(deserialization=log_and_continue, dead_letter_topic=...) skips such records"
    return Failed(f"{context.node}{origin} failed on {position}: {type(error).__name__}: {error}{hint}")
