"""A share coordinator of one partition of `__share_group_state`."""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING

from ottla.broker.coordinators.driver import Driver
from ottla.broker.metadata.topic_view import ImageTopics, TopicStep
from ottla.kernel.ids import Uuid
from ottla.replica.partition import Partition
from ottla.share.coordinator import ShareCoordinator
from ottla.share.event import Prune, StateSettings, TopicsChanged

if TYPE_CHECKING:
    from ottla.broker.coordinators.parts import CoordinatorParts
    from ottla.broker.runtime import Runtime


class ShareStateDriver(Driver[ShareCoordinator]):
    """The driver of a share coordinator. `ShareStates` creates, loads and ends it."""

    writing = frozenset(
        {"InitializeShareGroupStateRequest", "WriteShareGroupStateRequest", "DeleteShareGroupStateRequest"}
    )

    def __init__(self, parts: CoordinatorParts, partition: Partition) -> None:
        super().__init__(parts, partition, _fresh(parts.runtime))

    def begin(self) -> None:
        """Start the machine, and drop the state of topics that were deleted in the meantime."""
        super().begin()
        topics = ImageTopics(self.runtime.image)
        self.step(TopicsChanged(topics))
        self._forget({key.topic_id for key in self.machine.states if topics.topic_name(key.topic_id) is None})

    def topics_changed(self, step: TopicStep) -> None:
        """Pass on deleted topics."""
        self.step(TopicsChanged(ImageTopics(self.runtime.image)))
        self._forget({topic_id for _, topic_id in step.deleted})

    def _forget(self, deleted: Set[Uuid]) -> None:
        if deleted:
            self.when_writable(lambda: self.step(TopicsChanged(ImageTopics(self.runtime.image), deleted)))

    def ask_others(self, effect: Prune) -> None:
        """Delete the log up to the offset that is no longer needed."""
        self.partition.log.advance_start_offset(effect.offset)
        self.partition.log_start_moved()


def _fresh(runtime: Runtime) -> ShareCoordinator:
    return ShareCoordinator(
        StateSettings.of(runtime.settings),
        ImageTopics(runtime.image),
    )
