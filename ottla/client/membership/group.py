"""A consumer's requests to its group coordinator: joining, heartbeats, commits. `membership` makes the decisions.

Rules:
- Heartbeats run in the background. Partitions are assigned and revoked only in `poll`, at the program's own pace.
- A member that was removed first gives up its partitions in a poll, then joins again.
- A consumer that does not poll for `max.poll.interval.ms` leaves, and joins again at its next poll. A poll that waits
  for records counts as polling all the time.
- A coordinator that has moved is looked up again; `Cluster` logs that once.
- A heartbeat that failed is sent again after retry.backoff.ms, not only when the next one is due. The pause grows up to
  retry.backoff.max.ms, as in Java's client: all members of all groups may ask for a coordinator that does not come.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from ottla.client.connection.clock import Backoff, now_ms
from ottla.client.connection.cluster import GROUP, Cluster
from ottla.client.connection.connection import BrokerConnection
from ottla.client.membership.membership import Outcome
from ottla.client.settings.consumer import ConsumerSettings
from ottla.kernel.client_error import Fenced, NotReachable, StaleEpoch, check, only
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition
from ottla.wire.api import ApiKey
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

_log = logging.getLogger("ottla.client")

#: The longest time for which a consumer's close waits for the brokers.
_END_TIMEOUT_MS = 30_000
#: The last versions of OffsetCommit and OffsetFetch with topic names.
_NAMED_TOPICS = 9
#: The first version of OffsetFetch that can wait for transactions (KIP-447).
_STABLE_FROM = 7


def end_timeout_ms(settings: ConsumerSettings) -> int:
    """How long a consumer's close waits for the brokers in all, as in Java's client."""
    return min(_END_TIMEOUT_MS, settings.request_timeout_ms)


class Owner(Protocol):
    """The consumer, as its group sees it."""

    async def subscribed(self) -> set[str]:
        """The existing topics of the subscription, with a pattern resolved."""

    def subscription(self) -> set[str]:
        """The topics of the subscription, as far as they are known."""

    def pattern_text(self) -> str | None:
        """The pattern that the broker evaluates (KIP-848), or None."""

    def owned(self) -> set[TopicPartition]: ...
    async def before_revoke(self) -> None:
        """Commit the consumed offsets, with auto-commit."""

    async def revoke(self, partitions: set[TopicPartition], *, lost: bool = False) -> None: ...
    async def assign_more(self, partitions: set[TopicPartition]) -> None: ...
    def something_to_do(self) -> None:
        """Wake a waiting poll, so that it looks at the group again."""


class Group(ABC):
    """The part that both protocols share: coordinator, heartbeats and offsets."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings, owner: Owner) -> None:
        assert settings.group_id is not None
        self.id: str = settings.group_id
        #: Error for the next poll to raise, such as fenced or not authorised.
        self.error: KafkaError | OttlaError | None = None
        self.polled_at_ms = now_ms()
        #: The number of calls that wait.
        self._poll_waits = 0
        self._cluster = cluster
        self._settings = settings
        self._owner = owner
        self._heartbeats: asyncio.Task[None] | None = None
        self._backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        self._closed = False
        #: The coordinator has removed this member; the program's next poll gives up its partitions.
        self._lost = False
        #: Resolved when the last request to leave is answered; None if there is none.
        self._leaving: asyncio.Future[None] | None = None
        self._identity: tuple[str, int, str | None] = ("", -1, None)
        #: The number of commits so far, and each partition's last one; they are sent in this order.
        self._commits = 0
        self._last_commit: dict[TopicPartition, int] = {}
        self._sending = asyncio.Lock()

    @property
    def lost(self) -> bool:
        """True if the coordinator has removed this member, and no poll has given up its partitions since."""
        return self._lost

    # ---- for each protocol to implement

    @property
    @abstractmethod
    def joined(self) -> bool:
        """True while the coordinator knows this member, as far as it has told."""

    @property
    @abstractmethod
    def busy(self) -> bool:
        """True if `poll` has anything to do."""

    @abstractmethod
    async def poll(self) -> asyncio.Future[None] | None:
        """Advance the membership. If a future is returned, wait for it and poll again."""

    @abstractmethod
    async def _send_leave(self, reason: str) -> None:
        """Ask the coordinator to forget this member, and forget the membership."""

    @abstractmethod
    def subscription_changed(self) -> None:
        """Note that the topics, or their partitions, have changed."""

    @abstractmethod
    def _commit_failed(self, code: int, member_id: str, generation: int) -> Outcome:
        """The outcome of a failed commit, sent with this identity, for the membership."""

    def _reader(self) -> tuple[str | None, int]:
        """(member id, epoch) with which committed offsets are read; (None, -1) where no coordinator checks them."""
        return None, -1

    def _read_refused(self, code: int, member_id: str | None, epoch: int) -> None:
        """Hook for a group's error in reading committed offsets with this identity; raises one to be retried."""
        return None

    def identity(self) -> tuple[str, int, str | None]:
        """(member id, generation or epoch, instance id) for commits; no member before the first join.

        A lost membership's identity is kept until the next join. Records that the program still commits then belong to
        another member: the coordinator refuses them under the old identity, and would accept them without one.
        """
        return self._identity

    def _set_identity(self, member_id: str, generation: int) -> None:
        self._identity = (member_id, generation, self._settings.group_instance_id)

    @contextmanager
    def poll_waits(self) -> Iterator[None]:
        """Context manager for a poll that waits: the program is alive, however long that takes."""
        self._poll_waits += 1
        try:
            yield
        finally:
            self._poll_waits -= 1
            self.polled_at_ms = now_ms()

    # ---- coordinator

    async def _coordinator(self, purpose: str = "coordinator") -> BrokerConnection:
        return await self._cluster.coordinator(GROUP, self.id, purpose)

    def _coordinator_moved(self) -> None:
        self._cluster.forget_coordinator(GROUP, self.id)

    def _moved(self, error: KafkaError | NotReachable) -> None:
        if isinstance(error, NotReachable) or error.code in (
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.NETWORK_EXCEPTION,
            ErrorCode.REQUEST_TIMED_OUT,
        ):
            self._coordinator_moved()

    async def leave(self, reason: str) -> None:
        """Leave the group. A poll beside this gives up the partitions, which others may have, and joins after it."""
        self._lost = True
        leaving = self._leaving = asyncio.get_running_loop().create_future()
        try:
            await self._send_leave(reason)
        finally:
            # Another request may have followed, as when the program closes its consumer meanwhile.
            if self._leaving is leaving:
                self._leaving = None
            leaving.set_result(None)

    async def end(self, reason: str, deadline_ms: int, *, leaves: bool = True) -> None:
        """Leave the group, which may not be confirmed in time, and stop the heartbeats."""
        try:
            if leaves:
                async with asyncio.timeout(max(0, deadline_ms - now_ms()) / 1000):
                    await self.leave(reason)
        except TimeoutError:
            _log.info("group %s: leaving (%s) was not confirmed in time", self.id, reason)
        finally:
            self._closed = True
            if self._heartbeats is not None:
                self._heartbeats.cancel()
                await asyncio.gather(self._heartbeats, return_exceptions=True)

    # ---- offsets

    async def _send_commit(
        self, offsets: Mapping[TopicPartition, tuple[int, int, str]]
    ) -> tuple[asyncio.Future[OffsetCommitResponse], str, int]:
        """The answer to come, and the identity with which it was asked for."""
        connection = await self._coordinator("")
        member_id, generation, instance_id = self.identity()
        request = OffsetCommitRequest(
            group_id=self.id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=_topics(offsets),
        )
        version = connection.version_of(ApiKey.OFFSET_COMMIT, _NAMED_TOPICS)
        answer = connection.send(request, timeout_ms=self._settings.request_timeout_ms, version=version)
        return answer, member_id, generation

    def begin_commit(self, offsets: Iterable[TopicPartition]) -> int:
        """The number of a commit of these partitions: it is older than those that begin later."""
        self._commits += 1
        self._last_commit.update(dict.fromkeys(offsets, self._commits))
        return self._commits

    async def commit(
        self,
        offsets: Mapping[TopicPartition, tuple[int, int, str]],
        timeout_ms: int,
        *,
        automatic: bool = False,
        number: int = 0,
    ) -> None:
        """Commit (offset, leader epoch, metadata) of each partition. KafkaError if one was refused.

        A commit is not retried once a later one has begun: it would move the group back to the older offset. An
        automatic one leaves out the partitions of later ones, also at its first attempt, and topics that the
        coordinator does not know: they were deleted. It waits for a newer epoch of the member if its own is over.
        `number`: of `begin_commit`, if that was called before.
        """
        if not offsets:
            return
        number = number or self.begin_commit(offsets)
        tried = False

        async def attempt() -> None:
            nonlocal tried
            async with self._sending:
                newest = {each: at for each, at in offsets.items() if self._last_commit[each] <= number}
                wanted = newest if automatic else offsets
                if not wanted:
                    return
                if tried and len(newest) < len(wanted):
                    raise OttlaError(f"group {self.id}: a commit was not confirmed before a later one began")
                tried = True
                answer, member_id, generation = await self._send_commit(wanted)
            response = await answer
            left = set(wanted)
            for topic in response.topics:
                for result in topic.partitions:
                    left.discard(TopicPartition(topic.name, result.partition_index))
                    if automatic and result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        continue
                    action = f"committing {topic.name}-{result.partition_index} in group {self.id}"
                    if result.error_code == ErrorCode.STALE_MEMBER_EPOCH and self.identity()[1] != generation:
                        # A heartbeat has brought a newer epoch since; the outer retry's timeout limits this.
                        return await attempt()
                    if result.error_code:
                        self._raise_refused(result.error_code, member_id, generation, action, automatic=automatic)
            self._check_complete(left)

        await self._cluster.retry(attempt, timeout_ms, self._moved)

    def _raise_refused(self, code: int, member_id: str, generation: int, action: str, *, automatic: bool) -> None:
        """Raise the error of a commit that was sent with this identity."""
        if self._commit_failed(code, member_id, generation) in (Outcome.REJOIN, Outcome.LOST):
            action = f"{action}: the group has rebalanced; another member may own the partition now"
        elif automatic and code == ErrorCode.STALE_MEMBER_EPOCH and self.joined:
            # Otherwise the next owner of a partition would read again what this member has processed.
            raise StaleEpoch(action)
        check(code, action)

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, tuple[int, int, str]]:
        """(offset, leader epoch, metadata) of the partitions that have a committed offset.

        With the consumer protocol the coordinator refuses a member that is not one any more, or has an old epoch: its
        partitions may be another member's. Waits for pending transactional offsets under every isolation level, as the
        Java consumer does: a consumer that starts before them would process the same records again.
        """
        topics: dict[str, list[int]] = {}
        for topic, number in partitions:
            topics.setdefault(topic, []).append(number)

        async def attempt() -> dict[TopicPartition, tuple[int, int, str]]:
            connection = await self._coordinator("")
            version = connection.version_of(ApiKey.OFFSET_FETCH, _NAMED_TOPICS)
            member_id, epoch = self._reader()
            if version >= 8:
                wanted = [
                    OffsetFetchRequestTopics(name=name, partition_indexes=numbers) for name, numbers in topics.items()
                ]
                group = OffsetFetchRequestGroup(
                    group_id=self.id, member_id=member_id, member_epoch=epoch, topics=wanted
                )
                request = OffsetFetchRequest(groups=[group], require_stable=True)
            else:
                old = [
                    OffsetFetchRequestTopic(name=name, partition_indexes=numbers) for name, numbers in topics.items()
                ]
                request = OffsetFetchRequest(group_id=self.id, topics=old, require_stable=version >= _STABLE_FROM)
            response = await connection.call(
                request, OffsetFetchResponse, timeout_ms=self._settings.request_timeout_ms, version=version
            )
            answer = only(response.groups, f"group {self.id}") if version >= 8 else response
            self._read_refused(answer.error_code, member_id, epoch)
            check(answer.error_code)
            committed = {}
            left = {TopicPartition(name, number) for name, numbers in topics.items() for number in numbers}
            for topic in answer.topics:
                for result in topic.partitions:
                    check(result.error_code)
                    partition = TopicPartition(topic.name, result.partition_index)
                    left.discard(partition)
                    if result.committed_offset >= 0:
                        committed[partition] = (
                            result.committed_offset,
                            result.committed_leader_epoch,
                            result.metadata or "",
                        )
            self._check_complete(left)
            return committed

        return await self._cluster.retry(attempt, timeout_ms, self._moved) if topics else {}

    def _check_complete(self, left: set[TopicPartition]) -> None:
        """Raise a retriable error for partitions that an answer leaves out."""
        if left:
            why = f"the broker's answer lacks the offset of {min(left)} (group {self.id})"
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, why)

    # ---- heartbeats

    def raise_error(self) -> None:
        """Raise the error of a heartbeat, if there is one: once, or always if another process is this member now."""
        error = self.error
        if error is not None:
            if not isinstance(error, Fenced):
                self.error = None
            raise error

    def _start_beating(self) -> None:
        if self._heartbeats is None or self._heartbeats.done():
            self._heartbeats = asyncio.get_running_loop().create_task(self._run_heartbeats())

    async def _run_heartbeats(self) -> None:
        while not self._closed:
            if not self._poll_waits and now_ms() - self.polled_at_ms > self._settings.max_poll_interval_ms:
                _log.warning(
                    "no poll for max.poll.interval.ms=%d: leaving group %s; poll more often, or process fewer records",
                    self._settings.max_poll_interval_ms,
                    self.id,
                )
                await self.leave("no poll for max.poll.interval.ms")
                # A poll that came meanwhile waits, and has to join.
                self._owner.something_to_do()
                return
            try:
                if await self._beat():
                    self._backoff.attempts = 0
                    pause_ms = self._pause_ms()
                else:
                    pause_ms = self._backoff.next_ms()
            except NotReachable as error:
                self._moved(error)
                pause_ms = self._settings.retry_backoff_max_ms
            except (KafkaError, OttlaError) as error:
                if isinstance(error, KafkaError) and error.code.retriable:
                    self._moved(error)
                    pause_ms = self._backoff.next_ms()
                else:
                    self.error = error
                    self._owner.something_to_do()
                    if isinstance(error, Fenced):
                        return
                    # As in Java's client: the program may have its rights, its certificate or its token again.
                    pause_ms = self._settings.retry_backoff_max_ms
            await self._sleep(pause_ms)

    async def _sleep(self, pause_ms: int) -> None:
        await asyncio.sleep(pause_ms / 1000)

    @abstractmethod
    def _pause_ms(self) -> int:
        """The time until the next heartbeat."""

    @abstractmethod
    async def _beat(self) -> bool:
        """Send a heartbeat, if one is due now. False if the coordinator must be asked again soon."""


def _topics(offsets: Mapping[TopicPartition, tuple[int, int, str]]) -> list[OffsetCommitRequestTopic]:
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (topic, number), (offset, epoch, metadata) in offsets.items():
        partition = OffsetCommitRequestPartition(
            partition_index=number,
            committed_offset=offset,
            committed_leader_epoch=epoch,
            committed_metadata=metadata,
        )
        topics.setdefault(topic, OffsetCommitRequestTopic(name=topic)).partitions.append(partition)
    return list(topics.values())
