"""The group coordinators of this node, one a partition of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.broker.driver import Driver
from ottla.broker.topic_view import ImageTopics
from ottla.group.coordinator import Coordinator
from ottla.group.event import Append, Called, Loaded, Resigned, TimePassed, TopicsChanged
from ottla.group.setting import GroupSettings
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.name import OFFSETS_TOPIC, coordinator_partition
from ottla.log.marker import read_marker
from ottla.replica.partition import Partition
from ottla.wire.batch import Batch

if TYPE_CHECKING:
    from ottla.broker.node import Node


class Groups:
    """All group coordinators. The node makes it, tells it of partitions and topics, and ends it."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._drivers: dict[int, GroupDriver] = {}

    def drivers(self) -> list[GroupDriver]:
        """Every coordinator, in the order of the partitions."""
        return [self._drivers[index] for index in sorted(self._drivers)]

    def partition_of(self, group_id: str) -> int:
        """Which partition of `__consumer_offsets` a group lives on; makes the topic when there is none yet."""
        node = self._node
        topic = node.image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            node.create_offsets_topic()
            topic = node.image.topics[OFFSETS_TOPIC]
        return coordinator_partition(group_id, len(topic.partitions))

    def driver_of(self, group_id: str) -> GroupDriver:
        """The coordinator of a group. NOT_COORDINATOR when its partition is not here."""
        return self.driver_at(self.partition_of(group_id))

    def driver_at(self, index: int) -> GroupDriver:
        """The coordinator on a partition of `__consumer_offsets`."""
        driver = self._drivers.get(index)
        if driver is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return driver

    def lead(self, partition: Partition) -> None:
        """A partition of `__consumer_offsets` is ours: load its coordinator."""
        self._drivers[partition.tp.partition] = GroupDriver(self._node, partition)

    def resign(self, index: int) -> None:
        """The partition is gone."""
        driver = self._drivers.pop(index, None)
        if driver is not None:
            driver.close()

    def topics_changed(self, event: TopicsChanged) -> None:
        """Tell every coordinator of topics made, grown and deleted."""
        for driver in self.drivers():
            driver.step(event)

    def close(self) -> None:
        """Answer whoever still waits, and stop the timers."""
        for index in list(self._drivers):
            self.resign(index)


class GroupDriver(Driver):
    """One group coordinator on one partition."""

    def __init__(self, node: Node, partition: Partition) -> None:
        self.machine = Coordinator(
            partition.tp.partition, GroupSettings.of(node.settings), node.rng, ImageTopics(node.image)
        )
        super().__init__(node, partition, self.machine, TimePassed())
        self.load()
        self.step(Loaded())

    def replay_batch(self, batch: Batch) -> None:
        """Records to `replay`, transaction markers to `replay_marker`."""
        header = batch.header
        if header.is_control:
            marker = read_marker(batch.data, header)
            if marker is not None:
                self.machine.replay_marker(header.producer_id, committed=not marker.aborted)
            return
        producer_id = header.producer_id if header.is_transactional else -1
        for record in batch.records():
            if record.key is not None:
                self.machine.replay(record.key, record.value, offset=record.offset, producer_id=producer_id)

    def ask(
        self,
        request: Any,
        version: int,
        answer: Callable[[Any], None],
        *,
        client_id: str = "",
        client_host: str = "",
        principal: str = "User:ANONYMOUS",
    ) -> None:
        """Put a request to the coordinator; `answer` is called once with the response, now or later."""
        self.step(Called(self.expect(answer), request, version, client_id, client_host, principal))

    def carry_out(self, effect: Append, now_ms: int) -> None:
        """Append, as part of the producer's transaction where the effect names one."""
        self.append(
            effect.entries,
            now_ms,
            producer_id=effect.producer_id,
            producer_epoch=effect.producer_epoch,
            transactional=effect.producer_id >= 0,
        )

    def close(self) -> None:
        """The machine answers NOT_COORDINATOR to whoever still waits."""
        self.step(Resigned())
        self.cancel_timer()
