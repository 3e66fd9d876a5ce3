"""A consumer's commits: on request, periodically, and before a rebalance.

Rules:
- `commit` without arguments commits the positions; in the middle of an iteration, only the records that were yielded.
  Each offset is committed with the leader epoch of the record before it (KIP-320).
- With `enable.auto.commit`, a poll commits what earlier polls returned: records count as processed when the next poll
  is made.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ottla.client.checked import checked
from ottla.client.connection.clock import now_ms
from ottla.client.consumer.metric import ConsumerMeter
from ottla.client.consumer.position import PartitionPosition
from ottla.client.membership.commit import (
    CommittedAt,
    CommittedOffset,
    GroupMetadata,
    Offsets,
    committed_offset,
    offsets_of,
)
from ottla.client.membership.group import Group
from ottla.client.settings.consumer import ConsumerSettings
from ottla.columns.record import ConsumerRecord
from ottla.kernel.error import KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition

_log = logging.getLogger("ottla.client")

#: The outcome of `commit_async`: None on success.
Failure = KafkaError | OttlaError | None


class CommitCalls(ABC):
    """The part of `AsyncConsumer` for commits."""

    settings: ConsumerSettings
    _positions: dict[TopicPartition, PartitionPosition]
    _lock: threading.Lock
    _group: Group | None
    meter: ConsumerMeter
    #: Polled records that an iteration has not yielded yet, the next one last.
    _in_hand: list[ConsumerRecord]
    #: While dead letters are written: the offset at which this poll began, by partition.
    _held: Mapping[TopicPartition, int]
    #: The automatic commit in progress, and when the last one began.
    _committing: asyncio.Task[None] | None
    #: The asynchronous commits in progress, which a close waits for.
    _commits: set[asyncio.Task[Any]]
    _committed_at_ms: int

    @checked
    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commit offsets to the group and wait until the coordinator has confirmed.

        `offsets` is None for the current positions, a mapping from partition to the offset of the next record to read,
        or a record, to commit its partition up to and including it. KafkaError if the group has rebalanced: nothing was
        committed then. OttlaError without group.id, or if another task began a later commit of the same partitions
        before this one was confirmed.
        """
        await self._commit(self._to_commit(offsets), self.settings.default_api_timeout_ms)

    def _committing_group(self, call_name: str) -> Group:
        """The group, or an outsider's view of it before this consumer subscribes or assigns."""
        if self.settings.group_id is None:
            raise OttlaError(f"{call_name} needs group.id: commits belong to a group")
        return self._group or self._outsider()

    @abstractmethod
    def _outsider(self) -> Group:
        """The group as seen by a non-member, which can read offsets, and commit while the group has no members."""

    def _to_commit(self, offsets: Offsets | None) -> dict[TopicPartition, CommittedAt]:
        return self._consumed() if offsets is None else offsets_of(offsets)

    def group_metadata(self) -> GroupMetadata:
        """This member's identity in its group, for a producer's `send_offsets`. OttlaError without a group."""
        if self._group is None:
            raise OttlaError("group_metadata needs group.id and a subscription or assignment")
        member_id, generation, instance_id = self._group.identity()
        return GroupMetadata(self._group.id, generation, member_id, instance_id)

    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next record for each partition whose position is known."""
        return {partition: committed[0] for partition, committed in self._consumed().items()}

    def next_offsets(self) -> dict[TopicPartition, CommittedOffset]:
        """The offsets that `commit()` would commit: positions, with the leader epoch of the record before each."""
        return {partition: committed_offset(committed) for partition, committed in self._consumed().items()}

    def _consumed(self) -> dict[TopicPartition, CommittedAt]:
        with self._lock:
            positions = {
                partition: state.position
                for partition, state in self._positions.items()
                if state.position is not None and state.reset is None
            }
            for partition, offset in self._held.items():
                if partition in positions:
                    positions[partition] = min(positions[partition], offset)
            for record in self._in_hand:
                # The next record is last in the list, so each partition's smallest offset wins.
                partition = TopicPartition(record.topic, record.partition)
                if partition in positions:
                    positions[partition] = record.offset
            return {
                partition: (position, self._positions[partition].epoch_before(position), "")
                for partition, position in positions.items()
            }

    async def _commit(
        self, offsets: dict[TopicPartition, CommittedAt], timeout_ms: int, *, automatic: bool = False, number: int = 0
    ) -> None:
        group = self._committing_group("commit")
        began_ms = now_ms()
        await group.commit(offsets, timeout_ms, automatic=automatic, number=number)
        now = now_ms()
        self.meter.committed(now - began_ms, now)

    @checked
    async def commit_and_report(self, offsets: Offsets | None, told: Callable[[Failure], Any] | None) -> None:
        """Commit and report the outcome to `told`, or to the log. An exception from `told` is logged."""
        failure: Failure = None
        task = asyncio.current_task()
        assert task is not None
        self._commits.add(task)
        try:
            await self.commit(offsets)
        except (KafkaError, OttlaError) as error:
            failure = error
        finally:
            self._commits.discard(task)
        if told is not None:
            try:
                told(failure)
            except Exception:
                _log.exception("group %s: the callback of a commit raised", self.settings.group_id)
        elif failure is not None:
            _log.warning("group %s: an asynchronous commit failed: %s", self.settings.group_id, failure)

    @checked
    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset | None]:
        """The group's committed offset of each partition; None where there is none."""
        wanted = [TopicPartition(*partition) for partition in partitions]
        offsets = await self._committing_group("committed").committed(wanted, self.settings.default_api_timeout_ms)
        return {
            partition: committed_offset(offsets[partition]) if partition in offsets else None for partition in wanted
        }

    def _auto_commit(self) -> None:
        """Commit in the background what earlier polls returned, if it is time."""
        if not self.settings.enable_auto_commit or self._group is None or not self._positions:
            return
        if now_ms() - self._committed_at_ms < self.settings.auto_commit_interval_ms:
            return
        if self._committing is None or self._committing.done():
            self._begin_auto_commit(self._group)

    def _begin_auto_commit(self, group: Group) -> None:
        """Commit in the background what earlier polls returned."""
        self._committed_at_ms = now_ms()
        offsets = self._to_commit(None)
        # The task begins after this poll, perhaps behind an explicit commit of the records it returns.
        number = group.begin_commit(offsets)
        last = self._committing

        async def commit() -> None:
            if last is not None:
                # `close` waits for one task: the latest.
                await asyncio.wait([last])
            try:
                await self._commit(offsets, self.settings.default_api_timeout_ms, automatic=True, number=number)
            except (KafkaError, OttlaError) as error:
                _log.warning("group %s: the automatic commit failed: %s", self.settings.group_id, error)

        self._committing = asyncio.get_running_loop().create_task(commit())

    async def before_revoke(self, timeout_ms: int | None = None) -> None:
        """Commit the consumed offsets, with auto-commit, within this time (default: request.timeout.ms)."""
        timeout_ms = self.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        if self.settings.enable_auto_commit and self._group is not None and self._positions:
            try:
                await self._commit(self._to_commit(None), timeout_ms, automatic=True)
            except (KafkaError, OttlaError) as error:
                _log.warning("group %s: the commit before a rebalance failed: %s", self.settings.group_id, error)
