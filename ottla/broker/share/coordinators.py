"""The share coordinators of this node, one for each partition of `__share_group_state`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.coordinators.coordinators import Coordinators
from ottla.broker.coordinators.topic_spec import internal_replicas, new_topic
from ottla.broker.metadata.topic_view import TopicStep
from ottla.kernel.ids import SHARE_TOPIC
from ottla.kernel.lazy import LazyModule
from ottla.replica.partition import Partition
from ottla.wire.api.create_topics import CreatableTopic

if TYPE_CHECKING:
    from ottla.broker.share import coordinator_driver
else:
    coordinator_driver = LazyModule("ottla.broker.share.coordinator_driver")


class ShareStates(Coordinators["coordinator_driver.ShareStateDriver"]):
    """All share coordinators of a node."""

    topic = SHARE_TOPIC

    def make(self, partition: Partition) -> coordinator_driver.ShareStateDriver:
        """A coordinator for the share partitions that a partition holds."""
        return coordinator_driver.ShareStateDriver(self.parts, partition)

    def new_topic(self) -> CreatableTopic:
        """`__share_group_state`, as the first lookup creates it."""
        settings = self.runtime.settings
        name = "share.coordinator.state.topic.replication.factor"
        replicas = internal_replicas(self.runtime, name, settings.share_coordinator_state_topic_replication_factor)
        return new_topic(
            SHARE_TOPIC,
            settings.share_coordinator_state_topic_num_partitions,
            {
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "min.insync.replicas": str(min(replicas, settings.share_coordinator_state_topic_min_isr)),
                "retention.ms": "-1",
                "segment.bytes": str(settings.share_coordinator_state_topic_segment_bytes),
            },
            replicas,
        )

    def topics_changed(self, step: TopicStep) -> None:
        """Tell every coordinator which topics were deleted."""
        for driver in self.loaded():
            driver.topics_changed(step)
