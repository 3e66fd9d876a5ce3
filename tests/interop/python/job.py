"""The loop of a Python peer: jobs in, lines out. A job's function is a generator of lines."""

import base64
import json
import queue
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Json = dict[str, Any]
Op = Callable[[Json], Iterable[Json]]

_lines: queue.Queue[str | None] = queue.Queue()


def run(ops: Mapping[str, Op], code_of: Callable[[BaseException], int | None]) -> None:
    """Serve jobs until stdin closes."""
    threading.Thread(target=_read, daemon=True).start()
    while (line := _lines.get()) is not None:
        job = json.loads(line)
        try:
            for answer in ops[job["op"]](job):
                say(answer)
        except Exception as problem:  # the client's error is the answer; its trace goes to stderr
            traceback.print_exc()
            name = type(problem).__name__
            say({"error": {"code": code_of(problem), "name": name, "message": str(problem)}})
        else:
            say({"done": True})


def told_to_leave() -> bool:
    """Did the next line come while this job runs? It can only be the one that ends it."""
    if _lines.empty():
        return False
    _lines.get()
    return True


def wait_to_leave() -> None:
    """Wait for the next line. It can only be the one that ends the job."""
    _lines.get()


def say(answer: Json) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def data(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)


def headers(record: Json) -> list[tuple[str, bytes | None]]:
    return [(name, data(value)) for name, value in record["h"]]


def record_line(
    partition: int,
    offset: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    header_list: Iterable[tuple[str, bytes | None]] | None,
) -> Json:
    pairs = [[name, text(content)] for name, content in header_list or ()]
    return {"p": partition, "o": offset, "t": timestamp, "k": text(key), "v": text(value), "h": pairs}


def _read() -> None:
    for line in sys.stdin:
        _lines.put(line)
    _lines.put(None)
