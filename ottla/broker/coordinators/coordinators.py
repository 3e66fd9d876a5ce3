"""The coordinators of one kind on this node, one for each partition of their topic.

Rules:
- FindCoordinator creates the topic that holds the coordinators (`ensure_topic`). Until then every other request gets
  NOT_COORDINATOR, as in Apache Kafka: a request that only reads changes nothing.
- A coordinator loads while the node serves, one piece of its log per turn of the loop; meanwhile its clients get
  COORDINATOR_LOAD_IN_PROGRESS and retry. A log of one piece is loaded at once.
- A coordinator of groups or share partitions, loaded or loading, goes on in a new leader epoch of the same leader, as
  in Apache Kafka; one of transactions is loaded again, because markers carry the epoch.
- A coordinator whose log refused an append, or whose machine met a bug, may hold state that the log does not have, so
  it is discarded. Its requests get NOT_COORDINATOR and are retried, and a new coordinator is loaded from the log a
  second later. Each further failure in the same leader epoch doubles that backoff, up to half a minute.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from ottla.broker.coordinators.parts import CoordinatorParts
from ottla.kernel.callbacks import call_each
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import coordinator_partition
from ottla.replica.partition import Partition
from ottla.wire.api.create_topics import CreatableTopic

if TYPE_CHECKING:
    from ottla.broker.coordinators.driver import Driver
    from ottla.broker.coordinators.refusals import Refusals

_log = logging.getLogger("ottla.broker")
_RETRY_SECONDS = 1.0
_RETRY_SECONDS_MAX = 30.0

D = TypeVar("D", bound="Driver[Any]")


class Coordinators(ABC, Generic[D]):
    """The coordinators of one kind. The node creates it, tells it which partitions it leads, and closes it."""

    topic: ClassVar[str]

    def __init__(self, parts: CoordinatorParts) -> None:
        self.parts = parts
        self.runtime = parts.runtime
        #: Partition index -> driver: those that are loaded, and those that are loading.
        self._drivers: dict[int, D] = {}
        self._loading: dict[int, tuple[D, Iterator[None]]] = {}
        self._retries: dict[int, asyncio.TimerHandle] = {}
        #: Partition index -> (the partition whose coordinator failed, the backoff after its next failure).
        self._backoff: dict[int, tuple[Partition, float]] = {}

    @abstractmethod
    def make(self, partition: Partition) -> D:
        """A driver for this partition, not loaded yet."""

    @abstractmethod
    def new_topic(self) -> CreatableTopic:
        """The topic that holds these coordinators' records, as the first lookup creates it."""

    def loaded(self) -> list[D]:
        """The loaded coordinators, in the order of their partitions."""
        return [self._drivers[index] for index in sorted(self._drivers)]

    def loading(self) -> list[D]:
        """The coordinators that are loading."""
        return [driver for driver, _ in self._loading.values()]

    def drivers(self) -> list[D]:
        """All coordinators; COORDINATOR_LOAD_IN_PROGRESS while one is loading."""
        if self._loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return self.loaded()

    def find(self, index: int) -> D | None:
        """The coordinator of a partition, if it is loaded."""
        return self._drivers.get(index)

    def ensure_topic(self, done: Callable[[], None]) -> None:
        """Create the topic unless it exists; call `done` when it exists or could not be created."""
        if self.has_topic:
            self.parts.leadership.on_created([self.topic], done)
        else:
            self.parts.create_topics([self.new_topic()], lambda _: done())

    @property
    def has_topic(self) -> bool:
        """Whether the topic exists."""
        return self.topic in self.runtime.image.topics

    def partition_of(self, name: str) -> int:
        """The partition that holds this group or transactional id, or will once the topic exists."""
        topic = self.runtime.image.topics.get(self.topic)
        count = self.new_topic().num_partitions if topic is None else len(topic.partitions)
        return coordinator_partition(name, count)

    def driver_of(self, name: str) -> D:
        """The coordinator of a group or transactional id; raises as `driver_at`."""
        return self.driver_at(self.partition_of(name))

    def driver_at(self, index: int) -> D:
        """The coordinator of a partition; NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS when none is loaded."""
        driver = self._drivers.get(index)
        if driver is None:
            loads = index in self._loading
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loads else ErrorCode.NOT_COORDINATOR)
        return driver

    def goes_on(self, index: int) -> bool:
        """Whether the coordinator of a partition goes on in this node's next leader epoch: its log is the same."""
        driver = self._led(index)
        return driver is not None and driver.goes_on

    def _led(self, index: int) -> D | None:
        """The coordinator of a partition, loaded or loading."""
        return self._loading[index][0] if index in self._loading else self._drivers.get(index)

    def lead(self, partition: Partition, refusals: Refusals | None = None) -> None:
        """Load the coordinator of a partition that this node leads now, unless it goes on from the epoch before.

        `refusals` are its failed predecessor's.
        """
        index = partition.tp.partition
        before = self._led(index)
        if before is not None:
            before.partition = partition
            return
        self._retries.pop(index, None)
        driver = self.make(partition)
        if refusals is not None:
            driver.refusals = refusals
        idle = not self._loading
        self._loading[index] = driver, driver.load()
        self._load(index)
        if idle and self._loading:
            self.runtime.loop.call_soon(self._load_more)

    def _load_more(self) -> None:
        """Load one piece of one coordinator per turn of the loop, so that other work goes on."""
        if self._loading:
            self._load(next(iter(self._loading)))
            self.runtime.loop.call_soon(self._load_more)

    def _load(self, index: int) -> None:
        driver, pieces = self._loading[index]
        try:
            next(pieces)
            return
        except StopIteration:
            del self._loading[index]
        except Exception as error:
            # A log that cannot be read must not keep other coordinators from loading.
            del self._loading[index]
            return self._cannot_load(driver, error)
        self._drivers[index] = driver
        driver.on_failure = self._replace
        try:
            driver.begin()
        except Exception:
            # The others go on loading.
            _log.exception("the coordinator of %s has failed as it began", driver.partition.tp)
            self._replace(driver)

    def _cannot_load(self, driver: D, error: Exception) -> None:
        tp, expected = driver.partition.tp, isinstance(error, OSError | KafkaError)
        _log.error("cannot load the coordinator of %s: %s; will retry", tp, error, exc_info=None if expected else error)
        if isinstance(error, OSError):
            self.parts.log_dirs.check(driver.partition.log, error)
        self._retry(driver)

    def _replace(self, driver: Driver[Any]) -> None:
        index = driver.partition.tp.partition
        if self._drivers.get(index) is driver:
            self.resign(index)
            self._retry(driver)

    def _retry(self, driver: Driver[Any]) -> None:
        partition = driver.partition
        if self.parts.leadership.partitions.get(partition.tp) is not partition:
            # Its directory has failed.
            return
        index = partition.tp.partition
        failed, seconds = self._backoff.get(index, (partition, _RETRY_SECONDS))
        if failed is not partition:
            seconds = _RETRY_SECONDS
        self._backoff[index] = partition, min(2 * seconds, _RETRY_SECONDS_MAX)
        self._retries[index] = self.runtime.loop.call_later(seconds, self.lead, partition, driver.refusals)

    def resign(self, index: int) -> None:
        """End the coordinator of a partition that this node no longer leads."""
        retry = self._retries.pop(index, None)
        if retry is not None:
            retry.cancel()
        self._loading.pop(index, None)
        driver = self._drivers.pop(index, None)
        if driver is not None:
            driver.end()

    def close(self) -> None:
        """End all coordinators: answer their pending requests and stop the timers."""
        call_each(partial(self.resign, index) for index in {*self._drivers, *self._loading, *self._retries})
