"""What scenes of the tools need and no tool brings about: members of groups, open transactions."""

from __future__ import annotations

import time
from contextlib import ExitStack

from ottla.client import Consumer, Producer

_WAIT_S = 10.0


class State:
    """What the scene has opened on the node at `server`."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._opened: dict[str, Consumer | Producer] = {}
        self._stack = ExitStack()

    def member(self, group: str, topic: str) -> None:
        """Join a group, with all partitions of a topic."""
        consumer = self._stack.enter_context(
            Consumer(
                self._server, group_id=group, client_id="reader", group_protocol="consumer", enable_auto_commit=False
            )
        )
        self._opened[group] = consumer
        consumer.subscribe([topic])
        end = time.monotonic() + _WAIT_S
        while not consumer.assignment():
            assert time.monotonic() < end, "no assignment"
            consumer.poll(0.05)

    def batch(self, topic: str, count: int | str) -> None:
        """Write records with keys and fixed times in one batch."""
        with Producer(self._server, linger_ms=10_000) as producer:
            for number in range(int(count)):
                key, value = f"key {number}", f"value {number}"
                producer.send(topic, value, key, partition=0, timestamp=1_000_000_000_000 + number)

    def leave(self, group: str) -> None:
        """Leave the group."""
        self._opened.pop(group).close()

    def transaction(self, name: str, topic: str) -> None:
        """Begin a transaction, with one record in partition 0."""
        producer = self._stack.enter_context(Producer(self._server, transactional_id=name))
        self._opened[name] = producer
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"pending", partition=0).result()

    def close(self) -> None:
        """Close what is open."""
        self._stack.close()
