"""A member of a group: librdkafka's consumer, which commits what it has read and can tell why it does not get on."""

from __future__ import annotations

import json
import sys
import time
import traceback
from typing import Any

from confluent_kafka import Consumer, KafkaException

from tests.crash.load import Worker

#: A classic member that died with its node holds its group up for so long behind the last start.
_SESSION_MS = 10_000
_STATISTICS_MS = 1000
#: A client that says nothing of itself for so long is stuck in a call.
_STALE_S = 15.0
#: A client that has had no connection for so long, beside a node that answers, will not get one.
_LOST_S = 30.0


class GroupMember(Worker):
    """An unmodified consumer of a group. What it reads and is promised goes on in its `successor`."""

    def __init__(self, bootstrap: str, topic: str, group: str, protocol: str) -> None:
        super().__init__(bootstrap, topic, "")
        self.group = group
        self.protocol = protocol
        self.read: dict[int, list[tuple[int, bytes | None]]] = {}
        #: Partition to the greatest offset that the node has confirmed.
        self.committed: dict[int, int] = {}
        self.outcomes: list[str] = []
        self._statistics: dict[str, Any] = {}
        self._told_at = self._connected_at = time.monotonic()
        settings = {"group.protocol": "consumer"} if protocol == "consumer" else {"session.timeout.ms": _SESSION_MS}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": group,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                # To the standard error, which a round keeps in a file.
                "debug": "broker,cgrp",
                "statistics.interval.ms": _STATISTICS_MS,
                "stats_cb": self.take_statistics,
                # When every broker is down, librdkafka begins anew with its bootstrap servers, and now and then hangs
                # there for good, without a connection.
                "metadata.recovery.strategy": "none",
                **settings,
            }
        )
        self._consumer.subscribe([topic])

    def turn(self) -> None:
        for message in self._consumer.consume(500, timeout=0.1):
            if message.error() is None:
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                self.read.setdefault(partition, []).append((offset, message.value()))
        if not self.read:
            return
        try:
            confirmed = self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            # The node went away, or there was nothing new: nothing was promised.
            self.outcomes[:] = [*self.outcomes[-20:], f"{time.time():.3f} {error}"]
            return
        for each in confirmed:
            if each.error is None and each.offset >= 0:
                self.answers += 1
                self.committed[each.partition] = max(each.offset, self.committed.get(each.partition, 0))

    def last_turn(self) -> None:
        self._consumer.close()

    def successor(self) -> GroupMember:
        """A fresh client in its place; this one is left to end when it can."""
        self._ending.set()
        fresh = GroupMember(self.bootstrap, self.topic, self.group, self.protocol)
        fresh.read = {partition: list(read) for partition, read in self.read.items()}
        fresh.committed = dict(self.committed)
        fresh.answers = self.answers
        return fresh

    def lost(self, now: float | None = None) -> bool:
        """Does the client itself say that it has long had no connection? Then nothing that a node says reaches it."""
        now = time.monotonic() if now is None else now
        return now - self._told_at < _STALE_S and now - self._connected_at > _LOST_S

    def evidence(self) -> str:
        """What the client says of itself, and where its thread is."""
        now = time.monotonic()
        frame = sys._current_frames().get(self.ident or 0)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else "its thread has ended\n"
        brokers = {
            name: {key: each[key] for key in ("state", "stateage", "connects", "disconnects", "req") if key in each}
            for name, each in self._statistics.get("brokers", {}).items()
        }
        return (
            f"{self.group}: committed {self.committed}, assigned {self._consumer.assignment()}\n"
            f"told {now - self._told_at:.0f} s ago, connected {now - self._connected_at:.0f} s ago\n"
            f"group: {self._statistics.get('cgrp')}\nbrokers: {json.dumps(brokers, indent=1)}\n"
            f"topics: {json.dumps(self._statistics.get('topics'))}\ncommits: {self.outcomes}\n{stack}"
        )

    def take_statistics(self, text: str, now: float | None = None) -> None:
        """librdkafka tells of itself, in JSON."""
        self._statistics = json.loads(text)
        self._told_at = time.monotonic() if now is None else now
        if any(each["state"] == "UP" for each in self._statistics["brokers"].values()):
            self._connected_at = self._told_at
