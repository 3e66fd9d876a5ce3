"""A share coordinator on one partition of `__share_group_state`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.broker.coordinators.driver import Driver
from ottla.broker.metadata.topic_view import ImageTopics, TopicStep
from ottla.replica.partition import Partition
from ottla.share.coordinator import ShareCoordinator
from ottla.share.event import Append, Called, Loaded, Prune, StateSettings, TimePassed, TopicsChanged
from ottla.wire.batch import Batch

if TYPE_CHECKING:
    from ottla.broker.node import BrokerNode


class ShareStateDriver(Driver[ShareCoordinator]):
    """`ShareStates` makes it, loads it and ends it."""

    writing = frozenset(
        {"InitializeShareGroupStateRequest", "WriteShareGroupStateRequest", "DeleteShareGroupStateRequest"}
    )

    def __init__(self, node: BrokerNode, partition: Partition) -> None:
        super().__init__(node, partition, _fresh(node), TimePassed())

    def begin(self) -> None:
        """The machine may answer; topics may have gone before their state did."""
        self.step(Loaded())
        topics = ImageTopics(self.node.image)
        gone = {key.topic_id for key in self.machine.states if topics.topic_name(key.topic_id) is None}
        self.step(TopicsChanged(topics, gone))

    def topics_changed(self, step: TopicStep) -> None:
        """Tell the machine of topics that are gone."""
        self.step(TopicsChanged(ImageTopics(self.node.image), [topic_id for _, topic_id in step.deleted]))

    def replay_batch(self, batch: Batch) -> None:
        """Every record to `replay`."""
        for record in batch.records():
            if record.key is not None:
                self.machine.replay(record.key, record.value, offset=record.offset)

    def ask(self, request: Any, answer: Callable[[Any], None]) -> None:
        """Put a request for one share partition; `answer` is called once with the response."""
        self.step(Called(self.expect(answer), request))

    def carry_out(self, effect: Append | Prune, now_ms: int) -> None:
        """Append, or cut off what is no longer needed."""
        if isinstance(effect, Append):
            self.append(effect.entries, now_ms)
        else:
            self.after_commit(lambda: self._prune(effect.offset))

    def _prune(self, offset: int) -> None:
        self.partition.log.advance_start_offset(offset)
        self.partition.start_moved()


def _fresh(node: BrokerNode) -> ShareCoordinator:
    return ShareCoordinator(
        StateSettings.of(node.settings),
        ImageTopics(node.image),
    )
