"""TestDriver: a whole program in one thread, without Spark or a broker (Kafka Streams: TopologyTestDriver).

    driver = TestDriver(builder.build(application_id="test"))
    lines = driver.input_topic("lines")
    lines.pipe("k", "hello world", timestamp=5)
    assert driver.output_topic("counts").read_key_values() == [("hello", 1), ("world", 1)]

Each record is processed to its end, through repartition topics and back, before the call returns. All topics have one
partition. The wall clock moves only by `advance_wall_clock`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from ottla.flow.check import checked
from ottla.flow.error import TopologyError
from ottla.flow.make_store import bound
from ottla.flow.record import Headers, Input, Output, Record
from ottla.flow.runner import Runner
from ottla.flow.serde import Serde, serde
from ottla.flow.where import here
from ottla.flow.window import Duration, Time, ms, time_ms
from ottla.kernel.argument import shown
from ottla.streams.application import Application

HeaderPairs = Sequence[tuple[str, bytes | None]]


class TestDriver:
    """Runs an application for tests (Kafka Streams: TopologyTestDriver).

    `start` is the initial wall-clock time. With `changelog`, writes to the stores' changelog topics are outputs too.
    Closes the processors at the end of a `with` block. A time is a datetime with a time zone, or ms since 1970.
    """

    __test__ = False

    @checked
    def __init__(self, application: Application, *, start: Time = 0, changelog: bool = False) -> None:
        self.application = application
        self._settings = replace(application.settings, changelog=changelog)
        self._runner = Runner(application.topology, self._settings, now=time_ms(start, "start", 0))
        self._produced: dict[str, deque[Output]] = {}
        self._offsets: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def input_topic(
        self,
        topic: str,
        *,
        key_serde: Any = None,
        value_serde: Any = None,
        start: Time | None = None,
        advance: Duration = 0,
    ) -> TestInputTopic:
        """A topic to write to. Serdes default to those of the source that reads it.

        A record piped without a timestamp gets the topic's time, which starts at `start` (default: the wall clock) and
        then advances by `advance` (a timedelta or ms).
        """
        self._check_input(topic)
        source = next(
            (candidate for candidate in self.application.topology.sources.values() if topic in candidate.topics), None
        )
        key = serde(key_serde, here()) or (source.key if source else None)
        value = serde(value_serde, here()) or (source.value if source else None)
        defaults = self._settings.defaults
        return TestInputTopic(
            self,
            topic,
            bound(key, defaults, f"the key of input topic {topic}", key=True),
            bound(value, defaults, f"the value of input topic {topic}"),
            self._runner.now if start is None else time_ms(start, "start", 0),
            ms(advance, "advance"),
        )

    def output_topic(self, topic: str, *, key_serde: Any = None, value_serde: Any = None) -> TestOutputTopic:
        """A topic to read from. Serdes default to those of the sink that writes it.

        TopologyError if the program cannot write the topic.
        """
        self._check_output(topic)
        sink = next(
            (candidate for candidate in self.application.topology.sinks.values() if candidate.topic == topic), None
        )
        key = serde(key_serde, here()) or (sink.key if sink else None)
        value = serde(value_serde, here()) or (sink.value if sink else None)
        defaults = self._settings.defaults
        return TestOutputTopic(
            self._produced.setdefault(topic, deque()),
            topic,
            bound(key, defaults, f"the key of output topic {topic}", key=True),
            bound(value, defaults, f"the value of output topic {topic}"),
        )

    def pipe(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: Time, headers: HeaderPairs = ()
    ) -> None:
        """Process a record given as bytes.

        TopologyError if no source reads the topic. StreamsError if processing fails: the driver stays usable, but the
        effects of the failed record up to then remain.
        """
        self._check_input(topic)
        time, pairs = time_ms(timestamp), _headers(headers)
        for what, data in (("key", key), ("value", value)):
            if not isinstance(data, (bytes, type(None))):
                raise TopologyError(
                    f"invalid {what}: {shown(data)} (expected bytes or None; input_topic().pipe() takes objects)",
                    here(),
                )
        offset = self._offsets.get(topic, 0)
        self._offsets[topic] = offset + 1
        self._run([Input(topic, 0, offset, time, key, value, pairs)])

    def advance_wall_clock(self, duration: Duration) -> None:
        """Advance the wall clock and call the wall-clock punctuators that become due."""
        self._runner.now += ms(duration)
        self._run([])

    @property
    def now(self) -> int:
        """The wall-clock time in ms since 1970."""
        return self._runner.now

    def state_store(self, name: str) -> Any:
        """The state store with this name. KeyError if there is none."""
        (task,) = self._runner.tasks.values()
        return task.store(name)

    def produced_topics(self) -> list[str]:
        """The topics with unread output, internal ones included."""
        return sorted(topic for topic, records in self._produced.items() if records)

    def take_produced(self) -> dict[str, list[Output]]:
        """Take all unread output records, as bytes, by topic."""
        taken = {topic: list(records) for topic, records in self._produced.items() if records}
        for records in self._produced.values():
            records.clear()
        return taken

    @property
    def dropped(self) -> int:
        """How many records were dropped: null keys, late records, and errors whose handler continues."""
        return sum(task.dropped for task in self._runner.tasks.values())

    def close(self) -> None:
        """Close the processors."""
        for task in self._runner.tasks.values():
            task.close()

    def _check_input(self, topic: str) -> None:
        known = self._runner.sources() | self._runner.sources(global_=True)
        sources = self.application.topology.sources.values()
        if topic not in known and not any(source.pattern is not None for source in sources):
            raise TopologyError(f"no source reads topic {topic} (sources read: {', '.join(sorted(known))})", here())

    def _check_output(self, topic: str) -> None:
        topology, settings = self.application.topology, self._settings
        if settings.write_any_topic(topology):
            return
        known = {topology.topic(str(sink.topic), settings.application_id) for sink in topology.sinks.values()}
        known |= {f"{settings.application_id}-{store}-changelog" for store in topology.stores}
        if settings.handlers.dead_letter_topic is not None:
            known.add(settings.handlers.dead_letter_topic)
        if topic not in known:
            raise TopologyError(f"no sink writes topic {topic} (topics: {', '.join(sorted(known)) or 'none'})", here())

    def _run(self, inputs: list[Input]) -> None:
        try:
            self._keep(self._runner.run(inputs))
        except Exception:
            self._keep(self._runner.outputs)
            for task in self._runner.tasks.values():
                self._keep(task.take_outputs())
            raise

    def _keep(self, outputs: Iterable[Output]) -> None:
        for output in outputs:
            self._produced.setdefault(output.topic, deque()).append(output)


class TestInputTopic:
    """A topic to write to. Made by `TestDriver.input_topic`."""

    __test__ = False

    def __init__(self, driver: TestDriver, topic: str, key: Serde, value: Serde, start: int, advance: int) -> None:
        self._driver = driver
        self.topic = topic
        self._key = key
        self._value = value
        self._time = start
        self._advance = advance

    def pipe(self, key: Any, value: Any, timestamp: Time | None = None, headers: HeaderPairs = ()) -> None:
        """Process a record. `timestamp`: a datetime with a time zone, or ms since 1970; by default the topic's time,
        which then advances.
        """
        if timestamp is None:
            timestamp = self._time
            self._time += self._advance
        self._driver.pipe(
            self.topic,
            None if key is None else self._key.serialize(self.topic, key),
            None if value is None else self._value.serialize(self.topic, value),
            timestamp,
            headers,
        )

    def pipe_all(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        """Process several (key, value) pairs."""
        pair: Any
        for pair in pairs:
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise TopologyError(f"invalid pair: {shown(pair)} (expected (key, value))", here())
            self.pipe(*pair)

    def advance_time(self, duration: Duration) -> None:
        """Advance the topic's time."""
        self._time += ms(duration)


class TestOutputTopic:
    """A topic to read from; each record is read once. Made by `TestDriver.output_topic`."""

    __test__ = False

    def __init__(self, records: deque[Output], topic: str, key: Serde, value: Serde) -> None:
        self._records = records
        self.topic = topic
        self._key = key
        self._value = value

    def __len__(self) -> int:
        return len(self._records)

    @property
    def is_empty(self) -> bool:
        """Whether all records have been read."""
        return not self._records

    def read_record(self) -> Record:
        """Read the next record. LookupError if there is none."""
        if not self._records:
            raise LookupError(f"topic {self.topic} has no more records to read")
        output = self._records.popleft()
        key = None if output.key is None else self._key.deserialize(self.topic, output.key)
        value = None if output.value is None else self._value.deserialize(self.topic, output.value)
        return Record(key, value, output.timestamp, output.headers)

    def read_records(self) -> list[Record]:
        """Read all remaining records."""
        return [self.read_record() for _ in range(len(self._records))]

    def read_key_value(self) -> tuple[Any, Any]:
        """Read the next record as (key, value). LookupError if there is none."""
        record = self.read_record()
        return record.key, record.value

    def read_key_values(self) -> list[tuple[Any, Any]]:
        """Read all remaining records as (key, value) pairs."""
        return [(record.key, record.value) for record in self.read_records()]

    def read_values(self) -> list[Any]:
        """Read the values of all remaining records."""
        return [record.value for record in self.read_records()]

    def read_map(self) -> dict[Any, Any]:
        """Read all remaining records: the latest value of each key."""
        return dict(self.read_key_values())


def _headers(given: Any) -> Headers:
    """The headers of a record. TopologyError if they are not pairs of a name and bytes."""
    pairs = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    for pair in pairs:
        known = isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)
        if not known or not isinstance(pair[1], (bytes, type(None))):
            raise TopologyError(
                f"invalid headers: {shown(given)} (expected a tuple or list of pairs (name, bytes or None))", here()
            )
    return pairs
