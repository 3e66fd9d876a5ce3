"""A group coordinator of one partition of `__consumer_offsets`: its machine, its log, and its requests to others."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ottla.broker.coordinators.driver import Driver
from ottla.broker.metadata.topic_view import ImageTopics, TopicStep
from ottla.coordinator.contract import append_error
from ottla.group.coordinator import GroupCoordinator
from ottla.group.event import (
    DeleteShareState,
    HeartbeatSuperseded,
    InitializeShareState,
    SettingsChanged,
    ShareStateAnswered,
    TopicsChanged,
)
from ottla.group.offsets.plan import CommitPlan, planned
from ottla.group.setting import CoordinatorSettings as CoordinatorSettings
from ottla.group.setting import GroupOverride
from ottla.group.state.classic import ClassicGroup
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.log.producer.marker import read_marker
from ottla.metadata.image import GROUP
from ottla.replica.partition import Partition
from ottla.settings.group.settings import GroupSettings
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.api.offset_commit import OffsetCommitRequest
from ottla.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.wire.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from ottla.wire.api.txn_offset_commit import TxnOffsetCommitRequest
from ottla.wire.batch import Batch

if TYPE_CHECKING:
    from ottla.broker.coordinators.parts import CoordinatorParts
    from ottla.broker.runtime import Runtime

_log = logging.getLogger("ottla.group")
_HEARTBEATS = (ConsumerGroupHeartbeatRequest, StreamsGroupHeartbeatRequest)
#: About a millisecond; with a tombstone for each offset fifteen.
_NAMES_PER_STEP = 5000
_OFFSETS_PER_STEP = 1000
#: (topic id, partition) -> error
ShareErrors = dict[tuple[Uuid, int], KafkaError]


class ShareStateWriter(Protocol):
    """The requests of a group coordinator to the share coordinators."""

    def initialize(
        self,
        group_id: str,
        state_epoch: int,
        offsets: Mapping[Uuid, Mapping[int, int]],
        done: Callable[[ShareErrors], None],
        is_over: Callable[[], bool],
    ) -> None:
        """Create the state of partitions, each at its offset. Nothing is sent any more once `is_over` returns True."""

    def delete(
        self,
        group_id: str,
        partitions: Mapping[Uuid, Sequence[int]],
        done: Callable[[ShareErrors], None],
        is_over: Callable[[], bool],
    ) -> None:
        """Delete the state of partitions; `is_over` as for `initialize`."""


class GroupDriver(Driver[GroupCoordinator]):
    """The driver of a group coordinator. `Groups` creates, loads and ends it."""

    #: Heartbeats are not listed: only the machine knows whether a heartbeat changes anything.
    writing = frozenset(
        {
            "JoinGroupRequest",
            "SyncGroupRequest",
            "LeaveGroupRequest",
            "OffsetCommitRequest",
            "TxnOffsetCommitRequest",
            "OffsetDeleteRequest",
            "DeleteGroupsRequest",
            "AlterShareGroupOffsetsRequest",
            "DeleteShareGroupOffsetsRequest",
        }
    )

    def __init__(
        self, parts: CoordinatorParts, share_states: Callable[[], ShareStateWriter], partition: Partition
    ) -> None:
        super().__init__(parts, partition, _fresh(parts.runtime, partition))
        self._share_states = share_states
        #: Topic changes that arrived while the coordinator was loading.
        self.missed: list[TopicStep] = []

    def begin(self) -> None:
        """Pass the settings and the topic changes missed during loading to the machine."""
        self.step(self.settings_changed())
        super().begin()
        if self.missed:
            names = self.runtime.image.topics
            deleted = [(name, topic_id) for each in self.missed for name, topic_id in each.deleted]
            changed = [name for each in self.missed for name in (*each.created, *each.changed) if name in names]
            self.topics_changed(TopicStep([], list(dict.fromkeys(changed)), deleted, []))
            self.missed.clear()

    def topics_changed(self, step: TopicStep) -> None:
        """Pass on topics that were created, extended or deleted."""
        self.step(TopicsChanged(ImageTopics(self.runtime.image), step.created, step.changed))
        if step.deleted:
            self._forget(deque(self.machine.shard.groups), step.deleted, self.partition.log.end_offset)

    def _forget(self, groups: deque[str], deleted: Sequence[tuple[str, Uuid]], log_end: int) -> None:
        """Have groups forget deleted topics, some of them in each turn of the loop."""

        def forget() -> None:
            offsets, part, looked = self.machine.shard.offsets, list[str](), 0
            while groups and looked < _OFFSETS_PER_STEP:
                part.append(groups.popleft())
                looked += 1 + sum(len(offsets.of_group(part[-1]).get(name, ())) for name, _ in deleted)
            topics = ImageTopics(self.runtime.image)
            self.step(TopicsChanged(topics, deleted=deleted, groups=part, log_end=log_end))
            if groups:
                self.runtime.loop.call_soon(self._forget, groups, deleted, log_end)

        self.when_writable(forget)

    def settings_changed(self) -> SettingsChanged:
        """The current settings of the node and of single groups."""
        image = self.runtime.image
        overrides = {
            name: GroupOverride.of(GroupSettings.resolve(image.config(GROUP, name), self.runtime.settings))
            for name in image.config_names(GROUP)
        }
        return SettingsChanged(CoordinatorSettings.of(self.runtime.settings), overrides)

    def writes(self, request: Any) -> bool:
        """As `Driver.writes`; a heartbeat to a classic group turns it into a group of the other protocol."""
        if isinstance(request, _HEARTBEATS):
            return isinstance(self.machine.shard.groups.get(request.group_id), ClassicGroup)
        return super().writes(request)

    def refused(self, event: Any) -> None:
        """As `Driver.refused`."""
        self.machine.refused(getattr(event, "ticket", -1))

    def replay_control(self, batch: Batch) -> None:
        """Replay a transaction marker."""
        marker = read_marker(batch.data, batch.header)
        if marker is not None:
            self.machine.replay_marker(batch.header.producer_id, committed=not marker.aborted)

    def ask(self, request: Any, version: int, answer: Callable[[Any], None], **client: Any) -> int:
        """As `Driver.ask`."""
        if _log.isEnabledFor(logging.DEBUG):
            group, member = getattr(request, "group_id", ""), getattr(request, "member_id", "")
            name, client_id = type(request).__name__, client.get("client_id", "")
            _log.debug("%s of group %r, member %r, client %r", name, group, member, client_id)
        return super().ask(request, version, answer, **client)

    def plan_commit(
        self, request: OffsetCommitRequest | TxnOffsetCommitRequest, version: int
    ) -> Generator[None, None, CommitPlan]:
        """Work out a long commit in steps; the plan goes with the request to the coordinator."""
        shard, bytes_max = self.machine.shard, self._batch_bytes_max()
        now_ms, metadata_max = self.runtime.clock.now_ms(), shard.settings.offset_metadata_max_bytes
        plan = yield from planned(request, version, shard.topics, now_ms, metadata_max, bytes_max)
        if plan.too_large:
            self._too_large(request, f"the offsets of one commit have more than {bytes_max} bytes")
        return plan

    def name_once(
        self, request: ConsumerGroupHeartbeatRequest | ShareGroupHeartbeatRequest
    ) -> Generator[None, None, None]:
        """Leave each subscribed name of a long heartbeat in it once, sorted; refuse names that fit into no record."""
        names: dict[str, None] = {}
        size = 0
        for number, name in enumerate(request.subscribed_topic_names or (), 1):
            if name not in names:
                names[name] = None
                size += len(name)
            if not number % _NAMES_PER_STEP:
                yield
        bytes_max = self._batch_bytes_max()
        if bytes_max is not None and size > bytes_max:
            raise self._too_large(request, f"the subscribed names of one member have more than {bytes_max} bytes")
        if request.subscribed_topic_names is not None:
            request.subscribed_topic_names = yield from _in_order([*names])

    def _batch_bytes_max(self) -> int | None:
        """The most bytes of a batch; None if a codec of the topic may make any batch small enough."""
        settings = self.partition.log.settings
        return None if settings.codec is not None else min(settings.max_message_bytes, settings.segment_bytes)

    def _too_large(self, request: Any, message: str) -> KafkaError:
        """Log that these records are not even made, and return the client's error."""
        self.refusals.refused(request, KafkaError(ErrorCode.MESSAGE_TOO_LARGE, message))
        return KafkaError(append_error(ErrorCode.MESSAGE_TOO_LARGE), message)

    def release_held(self, ticket: int) -> None:
        """Answer a delayed request now, because the client has already sent its next one."""
        if not self.failed:
            self.step(HeartbeatSuperseded(ticket))

    def ask_others(self, effect: InitializeShareState | DeleteShareState) -> None:
        """Pass a request on to the share coordinators."""
        on_answer = partial(self._share_answered, effect.call_id)
        match effect:
            case InitializeShareState(_, group_id, epoch, offsets):
                self._share_states().initialize(group_id, epoch, offsets, on_answer, lambda: self.failed)
            case DeleteShareState(_, group_id, partitions):
                self._share_states().delete(group_id, partitions, on_answer, lambda: self.failed)

    def _share_answered(self, call_id: int, errors: Mapping[tuple[Uuid, int], KafkaError]) -> None:
        self.step(ShareStateAnswered(call_id, errors))


def _fresh(runtime: Runtime, partition: Partition) -> GroupCoordinator:
    return GroupCoordinator(
        partition.tp.partition, CoordinatorSettings.of(runtime.settings), runtime.rng, ImageTopics(runtime.image)
    )


def _in_order(names: list[str]) -> Generator[None, None, list[str]]:
    """The names sorted in steps: runs of them, and then two runs at a time, which a sort merges in linear time."""
    runs = [names[at : at + _NAMES_PER_STEP] for at in range(0, len(names), _NAMES_PER_STEP)]
    for run in runs:
        run.sort()
        yield
    while len(runs) > 1:
        for at in range(len(runs) // 2):
            runs[at] += runs.pop()
            runs[at].sort()
            yield
    return runs[0] if runs else []
