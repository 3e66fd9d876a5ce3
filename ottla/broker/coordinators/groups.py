"""The group coordinators of this node, one for each partition of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from ottla.broker.coordinators.coordinators import Coordinators
from ottla.broker.coordinators.parts import CoordinatorParts
from ottla.broker.coordinators.topic_spec import internal_replicas, new_topic
from ottla.broker.metadata.topic_view import TopicStep
from ottla.kernel.ids import OFFSETS_TOPIC
from ottla.kernel.lazy import LazyModule
from ottla.replica.partition import Partition
from ottla.wire.api.create_topics import CreatableTopic

if TYPE_CHECKING:
    from ottla.broker.controllers.controllers import Controllers
    from ottla.broker.coordinators import group_driver, internal_topic
else:
    group_driver = LazyModule("ottla.broker.coordinators.group_driver")
    internal_topic = LazyModule("ottla.broker.coordinators.internal_topic")


class GroupCoordinators(Coordinators["group_driver.GroupDriver"]):
    """All group coordinators of a node."""

    topic = OFFSETS_TOPIC

    def __init__(
        self,
        parts: CoordinatorParts,
        controllers: Controllers,
        share_states: Callable[[], group_driver.ShareStateWriter],
    ) -> None:
        super().__init__(parts)
        self._controllers = controllers
        self._share_states = share_states

    @cached_property
    def internal_topics(self) -> internal_topic.InternalTopics:
        """Creates the internal topics that Kafka Streams applications lack."""
        return internal_topic.InternalTopics(self.runtime.clock, self._controllers)

    def make(self, partition: Partition) -> group_driver.GroupDriver:
        """A coordinator for the groups of a partition."""
        return group_driver.GroupDriver(self.parts, self._share_states, partition)

    def new_topic(self) -> CreatableTopic:
        """`__consumer_offsets`, as the first lookup creates it."""
        settings = self.runtime.settings
        name, value = "offsets.topic.replication.factor", settings.offsets_topic_replication_factor
        replicas = internal_replicas(self.runtime, name, value)
        return new_topic(
            OFFSETS_TOPIC,
            settings.offsets_topic_num_partitions,
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(settings.offsets_topic_segment_bytes),
            },
            replicas,
        )

    def topics_changed(self, step: TopicStep) -> None:
        """Tell every coordinator which topics were created, extended or deleted."""
        for driver in self.loading():
            driver.missed.append(step)
        for driver in self.loaded():
            driver.topics_changed(step)

    def settings_changed(self) -> None:
        """Tell every coordinator that the settings of the node or of a group changed."""
        for driver in self.loaded():
            driver.step(driver.settings_changed())
