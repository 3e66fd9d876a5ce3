"""A node's own log: its destination, the format of its lines, and the lines about requests.

    2026-11-22T02:40:11.512Z INFO  ottla.broker  node 1 ready on 127.0.0.1:9092
    {"time": "2026-11-22T02:40:11.512Z", "level": "INFO", "logger": "ottla.broker", "message": "..."}

Rules:
- Levels are Kafka's: FATAL, ERROR, WARN, INFO, DEBUG, TRACE. DEBUG has a line for every request and connection; TRACE
  shows the content of requests and responses, shortened, but never of those that carry secrets.
- `configs set logger` changes levels while the node runs. `RequestLog.look` then checks the logger once, so that
  requests cost nothing while no logger wants lines about them.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.kernel.error import KafkaError, OttlaError
from ottla.wire.api import ApiKey

if TYPE_CHECKING:
    from ottla.broker.call.handler import Call, Handler, Times
    from ottla.broker.observe.slow import SlowRequests
    from ottla.broker.observe.spans import Spans
    from ottla.net.inbound import Slot

TRACE = 5
#: Kafka's level name -> Python's level.
LEVELS = {"FATAL": 50, "ERROR": 40, "WARN": 30, "INFO": 20, "DEBUG": 10, "TRACE": TRACE}
_NAMES = {number: name for name, number in LEVELS.items()}
_SECRET = {
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
}
#: Limits of what is shown: entries of a list, characters of a text, nesting depth of a structure.
_ENTRIES_MAX, _TEXT_MAX, _DEPTH_MAX = 3, 80, 5


class LineFormatter(logging.Formatter):
    """Time, level, logger, message; and a traceback, unless the error's own message says enough."""

    def format(self, record: logging.LogRecord) -> str:
        text = f"{_time(record)} {_level(record):<5} {record.name}  {_one_line(record.getMessage())}"
        if not record.exc_info:
            return text
        error = record.exc_info[1]
        if isinstance(error, OSError | KafkaError | OttlaError):
            return f"{text}: {_one_line(str(error))}"
        return f"{text}\n{self.formatException(record.exc_info)}"


class _Json(logging.Formatter):
    """A JSON object per line, for log collectors."""

    def format(self, record: logging.LogRecord) -> str:
        import json

        fields = {
            "time": _time(record),
            "level": _level(record),
            "logger": record.name,
            "message": record.getMessage(),
            "thread": record.threadName,
        }
        fields.update(getattr(record, "fields", {}))
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def _one_line(text: str) -> str:
    """The text without line breaks, so that a client cannot forge log lines."""
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def _time(record: logging.LogRecord) -> str:
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{at}.{int(record.msecs):03d}Z"


def _level(record: logging.LogRecord) -> str:
    return _NAMES.get(record.levelno, record.levelname)


def configure(level: str = "INFO", file: str | None = None, form: str = "text") -> Callable[[], None]:
    """Send the log to a file (reopened after logrotate moves it away) or stderr; return an undo function."""
    handler = _file_handler(file) if file else logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else LineFormatter())
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(LEVELS[level])

    def undo() -> None:
        root.removeHandler(handler)
        root.setLevel(before)
        if file:
            handler.close()

    return undo


def _file_handler(file: str) -> logging.StreamHandler[Any]:
    from logging.handlers import WatchedFileHandler

    try:
        return WatchedFileHandler(file, encoding="utf-8")
    except OSError as error:
        raise OttlaError(f"cannot write the log to {file}: {error.strerror}") from error


class RequestLog:
    """Log lines and spans about requests, while they are wanted."""

    def __init__(self) -> None:
        self._log = logging.getLogger("ottla.request")
        #: Whether a log needs the timestamps of requests.
        self.wanted = False
        #: The log of slow requests, if enabled.
        self.slow: SlowRequests | None = None
        #: The spans of traced records, if enabled.
        self.spans: Spans | None = None
        self.look()

    def look(self) -> None:
        """Check again whether lines are wanted, after a change of the levels."""
        self.wanted = self.slow is not None or self.spans is not None or self._log.isEnabledFor(logging.DEBUG)

    def answered(self, call: Call, times: Times, handler: Handler, request: Any, reply: Any, slot: Slot) -> None:
        """Log a request whose response goes into `slot`."""
        if self.slow is not None:
            self.slow.answered(call, handler, times, request, reply, slot)
        if self.spans is not None:
            self.spans.answered(call, handler, request, reply, slot)
        if not self._log.isEnabledFor(logging.DEBUG):
            return
        name, seconds = handler.api.name, call.connection.turns.now() - times.began_at
        host, port = call.connection.peer
        self._log.debug(
            "%s v%d of %s:%d, client %r, correlation id %d: %.3f ms",
            name,
            call.version,
            host,
            port,
            call.client_id[:_TEXT_MAX],
            call.correlation_id,
            seconds * 1000,
        )
        if self._log.isEnabledFor(TRACE) and handler.api.key not in _SECRET:
            self._log.log(TRACE, "%s v%d: %s -> %s", name, call.version, brief(request), brief(reply))


def brief(value: Any, depth: int = 0) -> str:
    """A message's content, shortened: the cost is independent of what a client sends."""
    if isinstance(value, str):
        return repr(value[:_TEXT_MAX])
    if isinstance(value, bytes | memoryview):
        return f"<{len(value)} bytes>"
    if depth > _DEPTH_MAX:
        return "..."
    if isinstance(value, list | tuple):
        shown = [brief(entry, depth + 1) for entry in value[:_ENTRIES_MAX]]
        return f"[{', '.join(shown)}{f', ... {len(value)}' if len(value) > _ENTRIES_MAX else ''}]"
    if names := getattr(type(value), "__annotations__", None):
        return f"({', '.join(f'{name}={brief(getattr(value, name, None), depth + 1)}' for name in names)})"
    return repr(value)[:_TEXT_MAX] if value is None or isinstance(value, int | float) else f"<{type(value).__name__}>"
