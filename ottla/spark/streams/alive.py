"""The heartbeat of a running program: a small record every few seconds, in the topic that holds the program's plan.

Tools read it to tell where an application runs and not to disturb it. The application's consumer group cannot tell
them, because it has no members: workers get their partitions from the driver.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ottla.client.producer.sync import Producer
from ottla.kernel.error import KafkaError, OttlaError
from ottla.spark.streams.last_run import ALIVE_KEY, SUFFIX, Alive

log = logging.getLogger(__name__)
INTERVAL_S = 5.0


class Heartbeat:
    """Writes `state()` every `INTERVAL_S`, at once after `wake`, and for the last time in `close`."""

    def __init__(self, settings: Mapping[str, Any], application_id: str, state: Callable[[], dict[str, Any]]) -> None:
        self._topic = application_id + SUFFIX
        self._state = state
        self._settings = dict(settings)
        self._due = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, daemon=True, name="ottla-streams-heartbeat")
        self._thread.start()

    def wake(self) -> None:
        self._due.set()

    def close(self) -> None:
        self._closed = True
        self._due.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            # Do not create the topic again after a reset has deleted it, and do not wait long for a missing topic.
            with Producer(self._settings | {"allow.auto.create.topics": False, "max.block.ms": 5_000}) as producer:
                while True:
                    self._due.clear()
                    closed = self._closed
                    try:
                        producer.send(self._topic, self._content(), ALIVE_KEY).result(INTERVAL_S)
                    except (KafkaError, OttlaError, TimeoutError) as error:
                        log.debug("cannot write the heartbeat to %s: %s", self._topic, error)
                    if closed:
                        return
                    self._due.wait(INTERVAL_S)
        except (KafkaError, OttlaError) as error:
            log.warning("cannot write heartbeats to %s: %s; tools show the application as stopped", self._topic, error)

    def _content(self) -> bytes:
        fields: dict[str, Any] = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "time_ms": time.time_ns() // 1_000_000,
        }
        return json.dumps(Alive(**fields, **self._state())._asdict()).encode()
