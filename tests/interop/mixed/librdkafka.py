"""librdkafka's idempotent producer and a member of a group, at work in a thread."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Self

import confluent_kafka

from ottla.sim.checker import SentRecord

_PAUSE_S = 0.05
_MOVING = (confluent_kafka.KafkaError.COORDINATOR_LOAD_IN_PROGRESS, confluent_kafka.KafkaError.NOT_COORDINATOR)


class Librdkafka:
    """At work in `with`; `failures` is every error that a record, a poll or a commit ended with."""

    def __init__(self, servers: str, topic: str) -> None:
        self._servers = servers
        self._topic = topic
        self.sent: list[SentRecord] = []
        self.consumed = 0
        self.failures: list[str] = []
        #: Commits that had to be sent again by the program.
        self.repeated = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="librdkafka")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()

    def _work(self) -> None:
        try:
            self._produce_and_consume()
        except BaseException as error:
            self.failures.append(repr(error))

    def _produce_and_consume(self) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self._servers, "enable.idempotence": True})
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "librdkafka",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([self._topic])
        try:
            while not self._ending.is_set():
                self._send(producer)
                for message in consumer.consume(100, _PAUSE_S):
                    problem = message.error()
                    if problem is not None:
                        self.failures.append(str(problem))
                    else:
                        self.consumed += 1
                        self._commit(consumer, message)
        finally:
            left = producer.flush(60)
            if left:
                self.failures.append(f"{left} records without an answer")
            consumer.close()

    def _commit(self, consumer: confluent_kafka.Consumer, message: Any) -> None:
        """Commit, again as long as the coordinator moves: librdkafka tries a few times and leaves the rest to us."""
        while True:
            try:
                consumer.commit(message=message, asynchronous=False)
            except confluent_kafka.KafkaException as error:
                if error.args[0].code() not in _MOVING:
                    raise
                self.repeated += 1
                self._ending.wait(_PAUSE_S)
            else:
                return

    def _send(self, producer: confluent_kafka.Producer) -> None:
        record = SentRecord("librdkafka", len(self.sent), b"librdkafka %d" % len(self.sent))
        self.sent.append(record)

        def told(error: Any, message: Any) -> None:
            if error is not None:
                self.failures.append(f"{record.value!r}: {error}")
            else:
                record.partition, record.offset = message.partition(), message.offset()

        producer.produce(self._topic, record.value, on_delivery=told)
        producer.poll(0)
