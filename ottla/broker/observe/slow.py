"""The log of slow requests: `slow.request.log.ms=500`, in the file or by `ottla configs` while the node runs.

    slow request: Produce v13 took 1520.1 ms (queue 0.0, handle 0.3, wait 1519.7, send 0.1; throttled for 0),
    client 'billing' of 10.0.0.7:51302, User:ann, listener SASL_SSL, 1043 bytes, answered with 97, correlation id 12

Parts, in ms:
- queue: from the arrival of the request's last byte to the start of its handler, while the loop serves others;
- handle: in the handler, on the node's loop;
- wait: for the commit by replicas, a flush, other members, another node, or later steps of a long request;
- send: until the socket has accepted the last byte of the response: longer if the client reads slowly or late;
- throttled: how long a quota keeps the node from reading the connection afterwards; not part of the total.

Rules:
- Fetch and ShareFetch wait for records at the client's request; that part of their wait is not counted.
- A request whose client disconnected before the response is logged, too.
- At most `_LINES_PER_SECOND` lines; the number of omitted lines is logged a second later.
- Text from clients is truncated. With `--log-format json` each part is a field.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.broker.call.handler import Call, Handler, Times
from ottla.broker.call.reply import Later
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.settings.server.own import OwnSettings
from ottla.wire.api import ApiKey

if TYPE_CHECKING:
    from ottla.net.inbound import Slot

_log = logging.getLogger("ottla.request.slow")
SETTING = OwnSettings.slow_request_log_ms.name
_LINES_PER_SECOND = 10
_TEXT_MAX = 80
_WAITS_ON_REQUEST = frozenset({ApiKey.FETCH, ApiKey.SHARE_FETCH})


def parse(text: str | None) -> float | None:
    """Milliseconds, or None if slow requests are not logged. OttlaError for an invalid value."""
    value = -1.0 if text is None else OwnSettings.slow_request_log_ms.parse(text)
    return None if value == -1 else value


class SlowRequests:
    """The slow request log of one node. The node creates it if the setting is given, and ends it with `close`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, over_ms: float) -> None:
        self._loop = loop
        self.over_ms = over_ms
        self._lines = self._omitted = 0
        self._second: Any = None

    def around(self, handler: Handler) -> Handler:
        """The handler, with timestamps of its return and of its response."""
        inner = handler.function

        def function(call: Call, request: Any) -> Any:
            times, now = call.times, call.connection.turns.now
            if times is None:
                # The setting was given after this request arrived.
                return inner(call, request)
            try:
                reply = inner(call, request)
            finally:
                times.handled_at = times.answered_at = now()
            if type(reply) is not Later:
                return reply
            later = Later(reply.superseded)

            def resolve(value: Any) -> None:
                times.answered_at = now()
                if call.connection.closed:
                    self._logger_for(call, handler, times, request, value)(0)
                later.resolve(value)

            reply.then(resolve)
            return later

        return Handler(handler.api, function, handler.error_response)

    def answered(self, call: Call, handler: Handler, times: Times, request: Any, reply: Any, slot: Slot) -> None:
        """Log the request, if it was slow, once the response in `slot` is sent."""
        log_line = self._logger_for(call, handler, times, request, reply)
        slot.on_queued = lambda: call.connection.when_sent(partial(log_line, sum(map(len, slot.parts))))

    def _logger_for(
        self, call: Call, handler: Handler, times: Times, request: Any, reply: Any
    ) -> Callable[[int], None]:
        """A callback that logs the request, given the response's size. It keeps neither of the two messages alive."""
        asked_wait_ms = max(request.max_wait_ms, 0) if handler.api.key in _WAITS_ON_REQUEST else 0
        throttle_ms = getattr(reply, "throttle_time_ms", 0)
        error = reply.code if isinstance(reply, KafkaError) else ErrorCode(getattr(reply, "error_code", 0))
        return partial(self._log_line, call, handler.api.name, times, asked_wait_ms, throttle_ms, error)

    def _log_line(
        self,
        call: Call,
        name: str,
        times: Times,
        asked_wait_ms: int,
        throttle_ms: int,
        error: ErrorCode,
        reply_bytes: int,
    ) -> None:
        now = call.connection.turns.now()
        wait_ms = (times.answered_at - times.handled_at) * 1000
        requested_ms = min(wait_ms, asked_wait_ms)
        took_ms = (now - times.received_at) * 1000 - requested_ms
        if took_ms < self.over_ms or not self._may_log():
            return
        parts = {
            "queue_ms": (times.began_at - times.received_at) * 1000,
            "handle_ms": (times.handled_at - times.began_at) * 1000,
            "wait_ms": wait_ms - requested_ms,
            "send_ms": (now - times.answered_at) * 1000,
        }
        fields: dict[str, Any] = {
            "api": name,
            "version": call.version,
            "took_ms": round(took_ms, 3),
            **{part: round(value, 3) for part, value in parts.items()},
            "throttle_ms": throttle_ms,
            "client_id": call.client_id[:_TEXT_MAX],
            "client": "{}:{}".format(*call.connection.peer),
            "principal": call.principal[:_TEXT_MAX],
            "listener": call.connection.listener_name,
            "request_bytes": times.frame_bytes,
            "reply_bytes": reply_bytes,
            "correlation_id": call.correlation_id,
            "client_left": call.connection.closed,
            "error": error.name,
        }
        _log.warning(
            "slow request: %s v%d took %.1f ms (%s; throttled for %d), client %r of %s, %s, listener %s, %d bytes, %s, "
            "correlation id %d",
            name,
            call.version,
            took_ms,
            ", ".join(f"{part.removesuffix('_ms')} {value:.1f}" for part, value in parts.items()),
            throttle_ms,
            fields["client_id"],
            fields["client"],
            fields["principal"],
            fields["listener"],
            times.frame_bytes,
            _outcome(fields),
            call.correlation_id,
            extra={"fields": fields},
        )

    def _may_log(self) -> bool:
        if self._second is None:
            self._second = self._loop.call_later(1.0, self._next_second)
        self._lines += 1
        if self._lines <= _LINES_PER_SECOND:
            return True
        self._omitted += 1
        return False

    def _next_second(self) -> None:
        self._second, self._lines = None, 0
        if self._omitted:
            _log.warning(
                "%d more slow requests within a second are not logged", self._omitted, extra={"left_out": self._omitted}
            )
            self._omitted = 0

    def close(self) -> None:
        """Close the log, because the setting was removed or the node stops."""
        if self._second is not None:
            self._second.cancel()
            self._next_second()


def _outcome(fields: dict[str, Any]) -> str:
    text = "the client left before its answer was sent" if fields["client_left"] else ""
    if not text:
        text = f"answered with {fields['reply_bytes']}"
    return text if fields["error"] == ErrorCode.NONE.name else f"{text}, {fields['error']}"
