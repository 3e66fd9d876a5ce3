"""A consumer's positions in its partitions, and how the first position is found.

Rules:
- A position is looked up once: the committed offset first, the reset policy if there is none. A lookup goes on beside
  the polls; a partition whose leader cannot be asked does not hold up the others.
- A position with a leader epoch (a committed offset, or a seek to one) is validated before anything is fetched.
- A seek during a lookup wins over the lookup's result.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress

from ottla.client.checked import checked
from ottla.client.connection.clock import MachineClock, now_ms
from ottla.client.connection.cluster import Cluster
from ottla.client.consumer.fetcher import Fetcher
from ottla.client.consumer.offset_lookup import EARLIEST, LATEST, OffsetLookup, OnFound
from ottla.client.consumer.position import PartitionPosition
from ottla.client.membership.commit import CommittedOffset, offsets_of
from ottla.client.membership.group import Group
from ottla.client.settings.consumer import BY_DURATION, ConsumerSettings
from ottla.columns.record import ConsumerRecord
from ottla.kernel.argument import whole
from ottla.kernel.client_error import NotReachable, RequestTimedOut
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition
from ottla.kernel.validators import duration_ms
from ottla.wire.batch import NO_LEADER_EPOCH


class PositionCalls(ABC):
    """The part of `AsyncConsumer` for positions and offsets."""

    settings: ConsumerSettings
    _cluster: Cluster
    _positions: dict[TopicPartition, PartitionPosition]
    _lock: threading.Lock
    _fetcher: Fetcher
    _group: Group | None
    #: Polled records that an iteration has not yielded yet, the next one last.
    _in_hand: list[ConsumerRecord]

    @abstractmethod
    def something_to_do(self) -> None:
        """Wake a waiting poll. On the loop only."""

    @abstractmethod
    def cancel_lookup(self) -> None:
        """Drop the lookup of positions, and its error."""

    @abstractmethod
    def take_in_hand(self, partitions: Iterable[TopicPartition] | None = None) -> list[ConsumerRecord]:
        """Take the records out that an iteration has not yielded yet."""

    @abstractmethod
    def return_in_hand(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Move positions back to the records that an iteration has left."""

    # ---- positions

    @checked
    async def seek(self, partition: TopicPartition, offset: int | CommittedOffset) -> None:
        """Move the position: the next poll, or the next step of an iteration, starts at `offset`.

        For a `CommittedOffset` with a leader epoch, the client first asks the leader whether its log was truncated
        below that offset (KIP-320). OttlaError for a negative offset or a partition that is not assigned.
        """
        if isinstance(offset, int):
            offset = CommittedOffset(offset)
        if offset.offset < 0:
            raise OttlaError(
                f"invalid offset: {offset.offset} (expected 0 or more; see also seek_to_beginning and seek_to_end)"
            )
        epoch = offsets_of({partition: offset})[partition][1]
        with self._lock:
            self._state(partition).seek(offset.offset, epoch)
        self._cluster.epoch_seen(partition, epoch)
        self.take_in_hand([partition])
        self._fetcher.wake()

    @checked
    async def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Move to the first record of these partitions (default: all assigned)."""
        self._reset(partitions, "earliest")

    @checked
    async def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Move to the end of these partitions (default: all assigned), to read only new records."""
        self._reset(partitions, "latest")

    @checked
    async def seek_to_committed(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Move to the group's committed offsets of these partitions (default: all assigned).

        After an aborted transaction, that is where its records begin. auto.offset.reset applies to a partition without
        a committed offset.
        """
        if self._group is None:
            raise OttlaError("seek_to_committed needs group.id: commits belong to a group")
        self._reset(partitions, "committed")

    def _reset(self, partitions: Iterable[TopicPartition], policy: str) -> None:
        wanted = list(partitions) or list(self._positions)
        self.cancel_lookup()
        with self._lock:
            for partition in wanted:
                self._state(partition).forget(policy)
        self.take_in_hand(wanted)
        self._fetcher.all_positioned = False
        self.something_to_do()

    @checked
    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that a poll returns. RequestTimedOut after default.api.timeout.ms."""
        self._state(partition)
        deadline_ms = now_ms() + self.settings.default_api_timeout_ms
        await self._find_positions(deadline_ms)
        for record in self._in_hand[::-1]:
            if (record.topic, record.partition) == partition:
                return record.offset
        await self._fetcher.settled(self._state(partition), deadline_ms)
        await self._find_positions(deadline_ms)
        position = self._state(partition).position
        if position is None:
            raise RequestTimedOut(f"{partition}: the position was not found within default.api.timeout.ms")
        return position

    @checked
    async def lag(self, partition: TopicPartition) -> int | None:
        """The number of records still to read, as of the last fetch; None before the first fetch."""
        state = self._state(partition)
        end = state.end_offset(stable=self.settings.read_committed)
        return None if end < 0 else max(0, end - await self.position(partition))

    @checked
    async def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until `resume`; they stay assigned."""
        wanted = list(partitions)
        with self._lock:
            for partition in wanted:
                self._state(partition).paused = True
        self.return_in_hand(wanted)

    @checked
    async def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of these partitions again."""
        with self._lock:
            for partition in partitions:
                self._state(partition).paused = False
        self._fetcher.wake()
        self.something_to_do()

    def paused(self) -> set[TopicPartition]:
        """The paused partitions."""
        return {partition for partition, state in self._positions.items() if state.paused}

    def _state(self, partition: TopicPartition) -> PartitionPosition:
        state = self._positions.get(TopicPartition(*partition))
        if state is None:
            raise OttlaError(f"{TopicPartition(*partition)} is not assigned to this consumer")
        return state

    # ---- offsets of partitions

    @checked
    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        """Look up offsets by timestamp (milliseconds since 1970-01-01 UTC).

        Returns, for each partition, (offset, timestamp) of its first record at or after the given time, or None if
        there is no such record.
        """
        for time in times.values():
            # Negative timestamps are reserved for special lookups.
            whole(time, "a timestamp (ms since 1970)", 0)
        offsets = await self._list_offsets(times, self.settings.default_api_timeout_ms)
        return {
            partition: offset_timestamp if offset_timestamp[0] >= 0 else None
            for partition, offset_timestamp in offsets.items()
        }

    @checked
    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of each partition's first record."""
        return await self._ends(partitions, EARLIEST)

    @checked
    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after each partition's last record (with read_committed, its last stable offset)."""
        return await self._ends(partitions, LATEST)

    async def _ends(self, partitions: Iterable[TopicPartition], which: int) -> dict[TopicPartition, int]:
        offsets = await self._list_offsets(dict.fromkeys(partitions, which), self.settings.default_api_timeout_ms)
        return {partition: offset_timestamp[0] for partition, offset_timestamp in offsets.items()}

    @checked
    async def partitions_for(self, topic: str) -> list[int]:
        """The partition numbers of a topic."""
        await self._cluster.known([topic], self.settings.default_api_timeout_ms)
        return [state.partition for state in self._cluster.metadata.topics[topic].partitions]

    async def _list_offsets(
        self,
        times: Mapping[TopicPartition, int],
        timeout_ms: int,
        as_available: bool = False,
        on_found: OnFound | None = None,
    ) -> dict[TopicPartition, tuple[int, int]]:
        """(offset, timestamp) by partition; `on_found` gets them earlier, as leaders answer.

        With `as_available`, only partitions whose leaders answer now, if any does.
        """
        lookup = OffsetLookup(self._cluster, self.settings, times, on_found)

        async def attempt() -> None:
            try:
                await lookup.attempt()
            except (KafkaError, NotReachable) as error:
                if not (as_available and lookup.found) or (isinstance(error, KafkaError) and not error.retriable):
                    raise

        if as_available and any(state.position is not None for state in self._positions.values()):
            # The next poll looks up what is left.
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_ms / 1000):
                    await attempt()
        elif lookup.left:
            await self._cluster.retry(attempt, timeout_ms)
        return lookup.found

    async def _find_positions(self, deadline_ms: int, as_available: bool = False) -> None:
        """Look up missing positions: committed offsets first, the reset policy for the rest.

        The next poll retries those not found in time. With `as_available` (as polls call it), positions that are
        available now are enough.
        """
        timeout_ms = max(1, deadline_ms - now_ms())
        policy = self.settings.auto_offset_reset
        with self._lock:
            asked = {
                partition: (state, state.reset)
                for partition, state in self._positions.items()
                if state.position is None
            }
        missing = {partition: reset for partition, (_, reset) in asked.items()}
        try:
            unset = [partition for partition, policy_name in missing.items() if policy_name == "committed"]
            if unset:
                committed = await self._group.committed(unset, timeout_ms) if self._group is not None else {}
                for partition in unset:
                    if partition in committed:
                        offset, epoch, _ = committed[partition]
                        self._cluster.epoch_seen(partition, epoch)
                        self._set_position(partition, asked[partition], offset, epoch)
                    else:
                        missing[partition] = policy
            times = {}
            for partition, reset in missing.items():
                if reset == "none":
                    why = f"{partition} has no valid committed offset, and auto.offset.reset is none: seek or set it"
                    raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, why)
                if reset in ("earliest", "latest"):
                    times[partition] = EARLIEST if reset == "earliest" else LATEST
                elif reset is not None and reset.startswith(BY_DURATION):
                    # Negative timestamps are reserved for special lookups.
                    times[partition] = max(0, MachineClock().now_ms() - duration_ms(reset.removeprefix(BY_DURATION)))
            late: list[TopicPartition] = []

            def on_found(partition: TopicPartition, offset: int) -> None:
                if offset < 0:
                    # No record is at or after the time.
                    late.append(partition)
                else:
                    self._set_position(partition, asked[partition], offset, NO_LEADER_EPOCH)

            await self._list_offsets(times, timeout_ms, as_available, on_found)
            if late:
                await self._list_offsets(dict.fromkeys(late, LATEST), timeout_ms, as_available, on_found)
        except NotReachable:
            return
        except KafkaError as error:
            if not error.retriable:
                raise
            return

    def _set_position(
        self, partition: TopicPartition, asked: tuple[PartitionPosition, str | None], offset: int, epoch: int
    ) -> None:
        state, reset = asked
        with self._lock:
            # A seek during the lookup, of whatever kind, wins; so does another assignment of the partition.
            if self._positions.get(partition) is state and state.position is None and state.reset == reset:
                state.seek(offset, epoch)
        self._fetcher.wake()
