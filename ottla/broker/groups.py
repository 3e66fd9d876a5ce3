"""The group coordinators of this node, one a partition of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.broker.driver import Driver
from ottla.broker.topic_view import ImageTopics
from ottla.cluster.image import GROUP
from ottla.group.coordinator import Coordinator
from ottla.group.event import (
    Answer,
    Append,
    Called,
    Loaded,
    Resigned,
    SettingsChanged,
    TimePassed,
    TopicsChanged,
)
from ottla.group.setting import GroupOverride
from ottla.group.setting import GroupSettings as CoordinatorSettings
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.group_settings import GroupSettings
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

    def settings_changed(self) -> None:
        """Tell every coordinator that the node's or a group's settings changed."""
        for driver in self.drivers():
            driver.step(driver.settings_changed())

    def close(self) -> None:
        """Answer whoever still waits, and stop the timers."""
        for index in list(self._drivers):
            self.resign(index)


class GroupDriver(Driver[Coordinator]):
    """One group coordinator on one partition."""

    def __init__(self, node: Node, partition: Partition) -> None:
        super().__init__(node, partition, _fresh(node, partition), TimePassed())
        self.load()
        self.step(self.settings_changed())
        self.step(Loaded())

    def settings_changed(self) -> SettingsChanged:
        """What the node and single groups are set to now."""
        image = self.node.image
        groups = {
            name: GroupSettings.resolve(image.config(GROUP, name), self.node.settings)
            for name in image.config_names(GROUP)
        }
        overrides = {
            name: GroupOverride(
                each.consumer_session_timeout_ms,
                each.consumer_heartbeat_interval_ms,
                each.consumer_assignment_interval_ms,
            )
            for name, each in groups.items()
        }
        return SettingsChanged(CoordinatorSettings.of(self.node.settings), overrides)

    def restart(self) -> None:
        """Whoever still waits is told NOT_COORDINATOR, and a machine begins that knows what is in the log."""
        now_ms = self.node.clock.now_ms()
        for effect in self.machine.step(Resigned(), now_ms):
            if isinstance(effect, Answer):
                self.answer(effect)
        self.machine = _fresh(self.node, self.partition)
        self.load()
        self.step(self.settings_changed())
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


def _fresh(node: Node, partition: Partition) -> Coordinator:
    return Coordinator(partition.tp.partition, CoordinatorSettings.of(node.settings), node.rng, ImageTopics(node.image))
