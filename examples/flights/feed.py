"""Produces the events with confluent-kafka, as any application would, at a chosen speed of time."""

import threading
import time
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from examples.flights import data
from examples.flights.data import Event

STREAM_PARTITIONS = 2
RESULTS = ("carrier-delays", "weather-delays")
WAIT_S = 30
#: the client's own log: errors only
QUIET = {"log_level": 3}


def create_topics(bootstrap_servers: str) -> None:
    """Create the demo's topics. KafkaException with TOPIC_ALREADY_EXISTS if one exists."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, **QUIET})
    # The events are from 2013: with a retention time, the first retention check would delete them.
    kept = {"retention.ms": "-1"}
    streams = [NewTopic(topic, STREAM_PARTITIONS, config=kept) for topic in data.STREAMS]
    tables = [NewTopic(topic, 1, config={"cleanup.policy": "compact"}) for topic in data.TABLES]
    made = admin.create_topics([*streams, *tables, *(NewTopic(topic, 1) for topic in RESULTS)])
    for answer in made.values():
        answer.result(WAIT_S)


@dataclass
class Feed:
    """The producer, on its own thread from `start` to `done`."""

    bootstrap_servers: str
    ticks: list[list[Event]]
    #: event time runs this many times as fast as the clock; None: no limit
    speed_up: float | None
    #: send final events of a much later time, which close all windows
    closes: bool = False
    sent: int = 0
    #: event time of the last sent record
    time_ms: int = 0
    seconds: float = 0.0
    failure: BaseException | None = None
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        # Java's partitioner: the weather must be in the partition to which Streams repartitions its airport's flights.
        settings = {"enable.idempotence": True, "linger.ms": 2, "partitioner": "murmur2_random"}
        self.producer = Producer({"bootstrap.servers": self.bootstrap_servers, **settings, **QUIET})
        self.thread = threading.Thread(target=self._run, name="feed", daemon=True)

    @property
    def total(self) -> int:
        return sum(map(len, self.ticks))

    def send_tables(self) -> None:
        """Produce the tables and wait until they are acknowledged."""
        self._send(list(data.tables()))

    def start(self) -> None:
        self.time_ms = self.ticks[0][0].timestamp_ms
        self.thread.start()

    def done(self) -> bool:
        """Whether everything is sent and acknowledged; raises the error if sending failed."""
        if self.failure is not None:
            raise self.failure
        return not self.thread.is_alive()

    def close(self) -> None:
        """Close the client, so that it does not try to reach a node that has stopped."""
        self.producer.close()

    def _run(self) -> None:
        began, first_ms = time.monotonic(), self.time_ms
        try:
            for tick in self.ticks:
                if self.speed_up:
                    due = began + (tick[0].timestamp_ms - first_ms) / 1000 / self.speed_up
                    time.sleep(max(0.0, due - time.monotonic()))
                self._send(tick)
                self.sent += len(tick)
                self.time_ms = tick[-1].timestamp_ms
                self.seconds = time.monotonic() - began
            if self.closes:
                self._send(data.closing(self.time_ms))
        except BaseException as failure:
            self.failure = failure

    def _send(self, events: list[Event]) -> None:
        for event in events:
            while True:
                try:
                    self.producer.produce(
                        event.topic, event.value, event.key, timestamp=event.timestamp_ms, on_delivery=self._delivered
                    )
                    break
                except BufferError:
                    self.producer.poll(0.1)  # the queue is full: let it drain
        if self.producer.flush(WAIT_S):
            raise TimeoutError(f"{self.bootstrap_servers} did not acknowledge records within {WAIT_S} s")
        if self.failure is not None:
            raise self.failure

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failure = KafkaException(error)
