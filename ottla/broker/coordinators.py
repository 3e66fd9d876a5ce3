"""The coordinators of one kind on this node, one a partition of their topic.

Rules:
- Whoever asks for a coordinator before there is its topic brings the topic about.
- A coordinator whose log refuses an append knows more than its log: it is thrown away, whoever waits for it is told
  NOT_COORDINATOR and comes again, and a second later a new one is loaded from the log.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from ottla.broker.driver import Driver
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.name import coordinator_partition
from ottla.replica.partition import Partition

if TYPE_CHECKING:
    from ottla.broker.node import Node

_log = logging.getLogger("ottla.broker")
_RETRY_SECONDS = 1.0

D = TypeVar("D", bound=Driver[Any])


class Coordinators(ABC, Generic[D]):
    """The node makes one of each kind, tells it of its topic's partitions, and ends it."""

    topic: ClassVar[str]

    def __init__(self, node: Node) -> None:
        self.node = node
        self._drivers: dict[int, D] = {}
        self._retries: dict[int, asyncio.TimerHandle] = {}

    @abstractmethod
    def make(self, partition: Partition) -> D:
        """A driver on this partition, loaded and begun."""

    @abstractmethod
    def create_topic(self) -> None:
        """Make the topic that holds these coordinators' records."""

    def drivers(self) -> list[D]:
        """Every coordinator, in the order of the partitions."""
        return [self._drivers[index] for index in sorted(self._drivers)]

    def partition_of(self, name: str) -> int:
        """Which partition holds this group or transactional id."""
        if self.topic not in self.node.image.topics:
            self.create_topic()
        return coordinator_partition(name, len(self.node.image.topics[self.topic].partitions))

    def driver_of(self, name: str) -> D:
        """The coordinator of a group or transactional id. NOT_COORDINATOR while its partition is not led here."""
        return self.driver_at(self.partition_of(name))

    def driver_at(self, index: int) -> D:
        """The coordinator on a partition."""
        driver = self._drivers.get(index)
        if driver is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return driver

    def lead(self, partition: Partition) -> None:
        """A partition of the topic is ours."""
        index = partition.tp.partition
        self._retries.pop(index, None)
        try:
            driver = self.make(partition)
        except OSError as error:
            _log.error("%s cannot be loaded: %s", partition.tp, error)
            return self._try_again(partition)
        self._drivers[index] = driver
        driver.on_failure = self._replace
        if driver.failed:
            self._replace(driver)

    def _replace(self, driver: Driver[Any]) -> None:
        self._drivers.pop(driver.partition.tp.partition, None)
        self._try_again(driver.partition)

    def _try_again(self, partition: Partition) -> None:
        index = partition.tp.partition
        self._retries[index] = self.node.loop.call_later(_RETRY_SECONDS, self.lead, partition)

    def resign(self, index: int) -> None:
        """The partition is gone."""
        retry = self._retries.pop(index, None)
        if retry is not None:
            retry.cancel()
        driver = self._drivers.pop(index, None)
        if driver is not None:
            driver.give_up()

    def close(self) -> None:
        """Tell whoever still waits, and stop the timers."""
        for index in {*self._drivers, *self._retries}:
            self.resign(index)
