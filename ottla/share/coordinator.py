"""The share coordinator of one partition of `__share_group_state`, which stores the state of share partitions.

The driver works as `ottla.coordinator.contract` says.

Rules:
- Only InitializeShareGroupState creates a share partition's state, which lives until it is deleted. A creation that is
  sent again when a leader has used the state already changes nothing.
- A write stores an update with the changes. After `share.coordinator.snapshot.update.records.per.snapshot` updates
  comes a snapshot, which has the whole state and makes all earlier records obsolete.
- The leader of a partition reads before it writes, which makes its epoch known: a write by an older leader is fenced,
  and so is a write from before the group's offsets were reset.
- The topic is not compacted but pruned at its start: a state that was not written to for long gets another snapshot, so
  that an idle share partition does not retain the whole log.

KIPs: 932 (share groups), 1226 (the count of complete deliveries).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ottla.coordinator.contract import Answer, Append, Called, Entry, Loaded, TimePassed, independent
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.kernel.now import Now
from ottla.share import answer
from ottla.share.event import Effect, Event, Prune, StateSettings, Topics, TopicsChanged
from ottla.share.state import UNSET_COUNT, UNSET_OFFSET, SharePartitionKey, StateBatch, StoredState, combine
from ottla.wire.api.delete_share_group_state import DeleteShareGroupStateRequest
from ottla.wire.api.initialize_share_group_state import InitializeShareGroupStateRequest
from ottla.wire.api.read_share_group_state import ReadShareGroupStateRequest
from ottla.wire.api.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from ottla.wire.api.write_share_group_state import WriteShareGroupStateRequest
from ottla.wire.record import share as record

_UNINITIALIZED = "operation on uninitialized share partition not allowed."


class ShareCoordinator:
    """The share partitions of one partition. The driver creates it, replays the log into it, and drops it."""

    def __init__(self, settings: StateSettings, topics: Topics) -> None:
        self.settings = settings
        self.topics = topics
        self.states: dict[SharePartitionKey, StoredState] = {}
        #: The number of updates since the last snapshot.
        self.updates: dict[SharePartitionKey, int] = {}
        #: The offset of each state's last snapshot: no record before the lowest of them is needed.
        self.snapshots: dict[SharePartitionKey, int] = {}
        self._end_offset = 0
        self._pruned_to = 0
        self._prune_ms: int | None = None
        self._cold_ms: int | None = None

    # -- time and events

    def deadline_ms(self) -> int | None:
        """When `TimePassed` is due, in monotonic time; None before `Loaded`."""
        if self._prune_ms is None or self._cold_ms is None:
            return None
        return min(self._prune_ms, self._cold_ms)

    def step(self, event: Event, now: Now) -> list[Effect]:
        """The effects of an event, to be carried out in order before the next step."""
        match event:
            case Called(ticket, request):
                entries, response = self._answer(request, now.wall_ms)
                return [*([Append(entries)] if entries else []), Answer(ticket, response)]
            case Loaded():
                self._prune_ms = now.monotonic_ms + self.settings.state_topic_prune_interval_ms
                self._cold_ms = now.monotonic_ms + self.settings.cold_partition_snapshot_interval_ms
                return []
            case TimePassed():
                return self._time_passed(now)
            case TopicsChanged():
                self.topics = event.topics
                return self._forget(frozenset(event.deleted))

    def _answer(self, request: Any, now_ms: int) -> tuple[list[Entry], Any]:
        topic = request.topics[0]
        partition = topic.partitions[0]
        key = SharePartitionKey(request.group_id, topic.topic_id, partition.partition)
        try:
            return self._handle(request, key, partition, now_ms)
        except KafkaError as error:
            return [], answer.failure(request, key, error)

    def _handle(self, request: Any, key: SharePartitionKey, asked: Any, now_ms: int) -> tuple[list[Entry], Any]:
        if key.partition < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")
        match request:
            case InitializeShareGroupStateRequest():
                return self._initialize(key, asked, now_ms), answer.initialized(key)
            case ReadShareGroupStateRequest():
                return self._read(key, asked, now_ms)
            case WriteShareGroupStateRequest():
                return self._write(key, asked, now_ms), answer.written(key)
            case DeleteShareGroupStateRequest():
                self._check_topic(key)
                return [self._tombstone(key)] if key in self.states else [], answer.deleted(key)
            case ReadShareGroupStateSummaryRequest():
                self._check_topic(key)
                return [], answer.summary(key, self.states.get(key) or StoredState(UNSET_OFFSET))
        raise AssertionError(f"{type(request).__name__} is not a request to a share coordinator")

    # -- requests

    def _check_topic(self, key: SharePartitionKey) -> None:
        name = self.topics.topic_name(key.topic_id)
        if name is None or key.partition >= self.topics.partition_count(name):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")

    def _state(self, key: SharePartitionKey, operation: str) -> StoredState:
        state = self.states.get(key)
        if state is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{operation} {_UNINITIALIZED}")
        return state

    def _initialize(self, key: SharePartitionKey, asked: Any, now_ms: int) -> list[Entry]:
        before = self.states.get(key)
        if before is not None and -1 != asked.state_epoch < before.highest_state_epoch:
            raise _fenced_state()
        self._check_topic(key)
        creates = asked.start_offset == UNSET_OFFSET
        if before is not None and creates and asked.state_epoch == before.state_epoch and self._is_used(key, before):
            # A late retry, for example of a group coordinator that was replaced.
            return []
        state = StoredState(
            asked.start_offset,
            state_epoch=asked.state_epoch,
            delivery_complete_count=UNSET_COUNT if asked.start_offset == UNSET_OFFSET else 0,
            snapshot_epoch=0 if before is None else before.snapshot_epoch + 1,
            create_ms=now_ms,
            write_ms=now_ms,
        )
        return [_snapshot(key, state)]

    def _is_used(self, key: SharePartitionKey, state: StoredState) -> bool:
        """Whether a leader has written to the state since it was created."""
        return bool(state.leader_epoch or state.batches or self.updates[key])

    def _read(self, key: SharePartitionKey, asked: Any, now_ms: int) -> tuple[list[Entry], Any]:
        state = self._state(key, "Read")
        _check_leader(state, asked.leader_epoch)
        self._check_topic(key)
        response = answer.read(key, state)
        if asked.leader_epoch in (-1, state.leader_epoch):
            return [], response
        count = state.delivery_complete_count
        return [self._entry(key, state, state.start_offset, asked.leader_epoch, count, (), now_ms)], response

    def _write(self, key: SharePartitionKey, asked: Any, now_ms: int) -> list[Entry]:
        state = self._state(key, "Write")
        _check_leader(state, asked.leader_epoch)
        if -1 != asked.state_epoch < state.highest_state_epoch:
            raise _fenced_state()
        self._check_topic(key)
        batches = tuple(
            StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
            for batch in asked.state_batches
        )
        count = asked.delivery_complete_count
        return [self._entry(key, state, asked.start_offset, state.leader_epoch, count, batches, now_ms)]

    def _entry(
        self,
        key: SharePartitionKey,
        state: StoredState,
        start_offset: int,
        leader_epoch: int,
        complete_count: int,
        batches: tuple[StateBatch, ...],
        now_ms: int,
    ) -> Entry:
        """The record of a write: an update, or a snapshot if one is due."""
        if self.updates.get(key, 0) >= self.settings.snapshot_update_records_per_snapshot:
            after = state.updated(start_offset, leader_epoch, complete_count, batches)
            epoch = state.snapshot_epoch + 1
            return _snapshot(key, replace(after, snapshot_epoch=epoch, create_ms=now_ms, write_ms=now_ms))
        value = record.ShareUpdateValue(
            snapshot_epoch=state.snapshot_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=complete_count,
            state_batches=_wire_batches(combine((), batches, start_offset)),
        )
        return record.key_bytes(record.ShareUpdateKey(**key._asdict())), record.value_bytes(value)

    def _tombstone(self, key: SharePartitionKey) -> Entry:
        return record.key_bytes(record.ShareSnapshotKey(**key._asdict())), None

    # -- time

    def _time_passed(self, now: Now) -> list[Effect]:
        effects: list[Effect] = []
        if self._cold_ms is not None and now.monotonic_ms >= self._cold_ms:
            self._cold_ms = now.monotonic_ms + self.settings.cold_partition_snapshot_interval_ms
            effects += independent(self._cold_snapshots(now.wall_ms))
        if self._prune_ms is not None and now.monotonic_ms >= self._prune_ms:
            self._prune_ms = now.monotonic_ms + self.settings.state_topic_prune_interval_ms
            needed = min(self.snapshots.values(), default=self._end_offset)
            if needed > self._pruned_to:
                self._pruned_to = needed
                effects.append(Prune(needed))
        return effects

    def _cold_snapshots(self, now_ms: int) -> list[Entry]:
        if all(state.create_ms != state.write_ms for state in self.states.values()):
            # All snapshots are copies, so nothing was written since; more copies would free nothing.
            return []
        interval_ms = self.settings.cold_partition_snapshot_interval_ms
        return [
            _snapshot(key, replace(state, snapshot_epoch=state.snapshot_epoch + 1, write_ms=now_ms))
            for key, state in self.states.items()
            if now_ms - state.write_ms >= interval_ms
        ]

    def _forget(self, deleted: frozenset[Uuid]) -> list[Effect]:
        if not deleted:
            return []
        return [*independent(self._tombstone(key) for key in self.states if key.topic_id in deleted)]

    # -- records

    def replay(self, key: bytes, value: bytes | None, *, offset: int, producer_id: int = -1) -> None:
        """Apply a record of the log."""
        parsed, parsed_value = record.parse(key, value)
        partition = SharePartitionKey(parsed.group_id, parsed.topic_id, parsed.partition)
        self._end_offset = offset + 1
        if isinstance(parsed, record.ShareUpdateKey):
            if parsed_value is not None:
                self._replay_update(partition, parsed_value)
        elif parsed_value is None:
            for table in (self.states, self.updates, self.snapshots):
                table.pop(partition, None)
        else:
            self._replay_snapshot(partition, parsed_value, offset)

    def _replay_snapshot(self, key: SharePartitionKey, value: record.ShareSnapshotValue, offset: int) -> None:
        before = self.states.get(key)
        self.states[key] = StoredState(
            value.start_offset,
            value.state_epoch,
            value.leader_epoch,
            value.delivery_complete_count,
            _batches(value.state_batches),
            value.snapshot_epoch,
            max(value.state_epoch, before.highest_state_epoch if before is not None else 0),
            max(value.leader_epoch, before.highest_leader_epoch if before is not None else 0),
            value.create_timestamp,
            value.write_timestamp,
        )
        self.updates[key] = 0
        self.snapshots[key] = offset

    def _replay_update(self, key: SharePartitionKey, value: record.ShareUpdateValue) -> None:
        before = self.states.get(key)
        if before is None:
            # The snapshot was pruned, or the update follows a tombstone.
            return
        self.states[key] = before.updated(
            value.start_offset, value.leader_epoch, value.delivery_complete_count, _batches(value.state_batches)
        )
        self.updates[key] = self.updates.get(key, 0) + 1

    # -- invariants

    def validate(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        assert self.states.keys() == self.updates.keys() == self.snapshots.keys()
        for state in self.states.values():
            last = state.start_offset - 1
            for batch in state.batches:
                assert last < batch.first_offset <= batch.last_offset
                last = batch.last_offset


def _check_leader(state: StoredState, epoch: int) -> None:
    if -1 != epoch < state.highest_leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, "The leader epoch in the request is older than ours.")


def _fenced_state() -> KafkaError:
    return KafkaError(ErrorCode.FENCED_STATE_EPOCH, "The state epoch in the request is older than ours.")


def _snapshot(key: SharePartitionKey, state: StoredState) -> Entry:
    value = record.ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.create_ms,
        write_timestamp=state.write_ms,
        state_batches=_wire_batches(state.batches),
    )
    return record.key_bytes(record.ShareSnapshotKey(**key._asdict())), record.value_bytes(value)


def _wire_batches(batches: tuple[StateBatch, ...]) -> list[record.StateBatch]:
    return [
        record.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in batches
    ]


def _batches(batches: list[record.StateBatch]) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in batches
    )
