"""A consumer's dealings with its group's coordinator: joining, heartbeats, commits. The deciding is `membership`'s.

Rules:
- Heartbeats run on their own; whatever takes partitions away or brings them happens in `poll`, in the program's own
  time.
- A consumer that does not poll for `max.poll.interval.ms` leaves, and joins again with its next poll.
- The coordinator is found anew when it moved; that is logged once by `Cluster`.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterable, Mapping
from typing import Protocol

from ottla.client.cluster import GROUP, Cluster, now_ms
from ottla.client.connection import Connection
from ottla.client.consumer_setting import ConsumerSettings
from ottla.client.error import NotReachable, check
from ottla.client.membership import ClassicMembership, ConsumerMembership, Outcome, candidates
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.name import TopicPartition, Uuid, uuid_text
from ottla.wire.api import ApiKey
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from ottla.wire.api.heartbeat import HeartbeatResponse
from ottla.wire.api.join_group import JoinGroupResponse
from ottla.wire.api.leave_group import LeaveGroupResponse
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
from ottla.wire.api.sync_group import SyncGroupResponse

_log = logging.getLogger("ottla.client")

#: The last versions of OffsetCommit and OffsetFetch that name topics.
_NAMED_TOPICS = 9


class Owner(Protocol):
    """The consumer, as its group sees it."""

    async def subscribed(self) -> set[str]:
        """The topics of the subscription that exist, a pattern resolved."""

    def pattern_text(self) -> str | None:
        """The pattern that the broker resolves (KIP-848), or None."""

    def owned(self) -> set[TopicPartition]: ...
    async def before_revoke(self) -> None:
        """Commit what was consumed, where that is automatic."""

    async def revoke(self, partitions: set[TopicPartition], *, lost: bool = False) -> None: ...
    async def assign_more(self, partitions: set[TopicPartition]) -> None: ...
    def something_to_do(self) -> None:
        """A poll that waits should look at the group again."""


class Group:
    """What both protocols share: the coordinator, heartbeats, offsets."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings, owner: Owner) -> None:
        assert settings.group_id is not None
        self.id: str = settings.group_id
        #: What the next poll raises: fenced, not authorised, ...
        self.error: KafkaError | None = None
        self.polled_at_ms = now_ms()
        self._cluster = cluster
        self._settings = settings
        self._owner = owner
        self._beating: asyncio.Task[None] | None = None
        self._closed = False

    # ---- to be said by each protocol

    @property
    def busy(self) -> bool:
        """Has `poll` anything to do?"""
        raise NotImplementedError

    async def poll(self) -> asyncio.Future[None] | None:
        """Bring the membership on. What is returned is worth waiting for; then poll again."""
        raise NotImplementedError

    async def leave(self, reason: str) -> None:
        """Say good-bye."""
        raise NotImplementedError

    def subscription_changed(self) -> None:
        """The topics, or their partitions, are others now."""
        raise NotImplementedError

    def _identity(self) -> tuple[str, int, str | None]:
        """Member id, generation or epoch, and instance id, as commits bear them."""
        raise NotImplementedError

    def _commit_failed(self, code: int) -> Outcome:
        raise NotImplementedError

    # ---- coordinator

    async def _coordinator(self, purpose: str = "coordinator") -> Connection:
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

    async def close(self) -> None:
        """End the heartbeats."""
        self._closed = True
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)

    # ---- offsets

    async def commit(self, offsets: Mapping[TopicPartition, tuple[int, int, str]], timeout_ms: int) -> None:
        """Commit (offset, leader epoch, metadata) of each partition. KafkaError if one was refused."""
        if not offsets:
            return
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for (topic, number), (offset, epoch, metadata) in offsets.items():
            part = OffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=offset,
                committed_leader_epoch=epoch,
                committed_metadata=metadata,
            )
            topics.setdefault(topic, OffsetCommitRequestTopic(name=topic)).partitions.append(part)

        async def attempt() -> None:
            connection = await self._coordinator("")
            member_id, generation, instance_id = self._identity()
            request = OffsetCommitRequest(
                group_id=self.id,
                generation_id_or_member_epoch=generation,
                member_id=member_id,
                group_instance_id=instance_id,
                topics=list(topics.values()),
            )
            version = connection.version_of(ApiKey.OFFSET_COMMIT, _NAMED_TOPICS)
            response = await connection.call(
                request, OffsetCommitResponse, timeout_ms=self._settings.request_timeout_ms, version=version
            )
            for topic in response.topics:
                for one in topic.partitions:
                    where = f"committing {topic.name}-{one.partition_index} in group {self.id}"
                    if one.error_code == ErrorCode.STALE_MEMBER_EPOCH and self._identity()[1] != generation:
                        # A heartbeat has brought a newer epoch since; the retry's time bounds this.
                        return await attempt()
                    if one.error_code and self._commit_failed(one.error_code) in (Outcome.REJOIN, Outcome.LOST):
                        check(one.error_code, f"{where}: the group has rebalanced, the partition may be another's now")
                    check(one.error_code, where)

        await self._cluster.retry(attempt, timeout_ms, self._moved)

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, tuple[int, int, str]]:
        """(offset, leader epoch, metadata) of those partitions that have a commit."""
        topics: dict[str, list[int]] = {}
        for topic, number in partitions:
            topics.setdefault(topic, []).append(number)
        stable = self._settings.read_committed

        async def attempt() -> dict[TopicPartition, tuple[int, int, str]]:
            connection = await self._coordinator("")
            version = connection.version_of(ApiKey.OFFSET_FETCH, _NAMED_TOPICS)
            if version >= 8:
                wanted = [OffsetFetchRequestTopics(name=name, partition_indexes=some) for name, some in topics.items()]
                group = OffsetFetchRequestGroup(group_id=self.id, topics=wanted)
                request = OffsetFetchRequest(groups=[group], require_stable=stable)
            else:
                old = [OffsetFetchRequestTopic(name=name, partition_indexes=some) for name, some in topics.items()]
                request = OffsetFetchRequest(group_id=self.id, topics=old, require_stable=stable)
            response = await connection.call(
                request, OffsetFetchResponse, timeout_ms=self._settings.request_timeout_ms, version=version
            )
            check(response.groups[0].error_code if version >= 8 else response.error_code)
            found = {}
            for topic in response.groups[0].topics if version >= 8 else response.topics:
                for one in topic.partitions:
                    check(one.error_code)
                    if one.committed_offset >= 0:
                        where = TopicPartition(topic.name, one.partition_index)
                        found[where] = (one.committed_offset, one.committed_leader_epoch, one.metadata or "")
            return found

        return await self._cluster.retry(attempt, timeout_ms, self._moved) if topics else {}

    # ---- heartbeats

    def _start_beating(self) -> None:
        if self._beating is None or self._beating.done():
            self._beating = asyncio.get_running_loop().create_task(self._beat_on())

    async def _beat_on(self) -> None:
        while not self._closed:
            pause_ms = self._pause_ms()
            if now_ms() - self.polled_at_ms > self._settings.max_poll_interval_ms:
                _log.warning(
                    "no poll for max.poll.interval.ms=%d: leaving group %s; poll more often, or process fewer records",
                    self._settings.max_poll_interval_ms,
                    self.id,
                )
                await self.leave("no poll for max.poll.interval.ms")
                return
            try:
                await self._beat()
            except KafkaError as error:
                if not error.code.retriable:
                    self.error = error
                    self._owner.something_to_do()
                    return
                self._moved(error)
                pause_ms = self._settings.retry_backoff_ms
            except NotReachable as error:
                self._moved(error)
                pause_ms = self._settings.retry_backoff_max_ms
            await self._nap(pause_ms)

    async def _nap(self, pause_ms: int) -> None:
        await asyncio.sleep(pause_ms / 1000)

    def _pause_ms(self) -> int:
        raise NotImplementedError

    async def _beat(self) -> None:
        raise NotImplementedError


class ClassicGroup(Group):
    """A member of a group of the classic protocol."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings, owner: Owner) -> None:
        super().__init__(cluster, settings, owner)
        self.membership = ClassicMembership(settings)
        self._joining: asyncio.Task[tuple[TopicPartition, ...]] | None = None
        self._lost = False
        self._partitions: dict[str, int] = {}

    @property
    def busy(self) -> bool:
        due = self.membership.join_reason is not None or self._joining is not None
        return self._lost or due or self.error is not None

    async def poll(self) -> asyncio.Future[None] | None:
        if self.error is not None:
            raise self.error
        if self._lost:
            self._lost = False
            await self._owner.revoke(self._owner.owned(), lost=True)
        if self._joining is None:
            if self.membership.join_reason is None:
                return None
            if not self.membership.cooperative and self._owner.owned():
                await self._owner.before_revoke()
                await self._owner.revoke(self._owner.owned())
            self._joining = asyncio.get_running_loop().create_task(self._join())
        if not self._joining.done():
            return self._joining  # type: ignore[return-value]
        joining, self._joining = self._joining, None
        assigned = set(joining.result())
        owned = self._owner.owned()
        if owned - assigned:
            await self._owner.before_revoke()
            await self._owner.revoke(owned - assigned)
            # They wait for their new owner: the next generation gives them (KIP-429).
            self.membership.rejoin("partitions were given back")
        await self._owner.assign_more(assigned - owned)
        return None

    async def _join(self) -> tuple[TopicPartition, ...]:
        """Join and sync until both succeed. Raises what no repetition mends."""
        while True:
            try:
                outcome, assigned = await self._join_once()
                if outcome is Outcome.GOOD:
                    self._start_beating()
                    return assigned
                if outcome is Outcome.LOST:
                    self._lost = bool(self._owner.owned())
                if outcome is Outcome.COORDINATOR:
                    self._coordinator_moved()
                if outcome is Outcome.AGAIN or outcome is Outcome.REJOIN:
                    continue
            except (KafkaError, NotReachable) as error:
                if isinstance(error, KafkaError) and not error.code.retriable:
                    self.membership.rejoin("the last try failed")
                    raise
                self._moved(error)
            await asyncio.sleep(self._settings.retry_backoff_ms / 1000)

    async def _join_once(self) -> tuple[Outcome, tuple[TopicPartition, ...]]:
        membership, settings = self.membership, self._settings
        topics = await self._owner.subscribed()
        connection = await self._coordinator()
        # The coordinator answers when all members have joined: that may take what each of them may take between polls.
        patience_ms = settings.max_poll_interval_ms + settings.request_timeout_ms
        request = membership.join_request(topics, self._owner.owned())
        joined = await connection.call(request, JoinGroupResponse, timeout_ms=patience_ms)
        outcome = membership.join_answered(joined)
        if outcome is not Outcome.GOOD:
            return outcome, ()
        partitions = None
        if membership.leads(joined):
            partitions = await self._counts(joined)
        sync = membership.sync_request(joined, partitions)
        synced = await connection.call(sync, SyncGroupResponse, timeout_ms=patience_ms)
        return membership.sync_answered(synced)

    async def _counts(self, joined: JoinGroupResponse) -> dict[str, int]:
        wanted = {topic for one in candidates(joined) for topic in one.subscription.topics}
        await self._cluster.update(wanted)
        known = self._cluster.metadata.topics
        self._partitions = {topic: len(known[topic].partitions) for topic in wanted if topic in known}
        return self._partitions

    def subscription_changed(self) -> None:
        self.membership.rejoin("the subscription or its topics have changed")

    def topics_changed(self) -> bool:
        """Has a topic that we assigned as leader other partitions now?"""
        known = self._cluster.metadata.topics
        return any(
            topic in known and len(known[topic].partitions) != count for topic, count in self._partitions.items()
        )

    def _pause_ms(self) -> int:
        return self._settings.heartbeat_interval_ms

    async def _beat(self) -> None:
        if not self.membership.joined or (self._joining is not None and not self._joining.done()):
            return
        connection = await self._coordinator("")
        response = await connection.call(
            self.membership.heartbeat_request(), HeartbeatResponse, timeout_ms=self._settings.request_timeout_ms
        )
        outcome = self.membership.heartbeat_answered(response.error_code)
        if outcome is Outcome.COORDINATOR:
            self._coordinator_moved()
        elif outcome is Outcome.LOST:
            self._lost = True
        if self.busy:
            self._owner.something_to_do()

    async def leave(self, reason: str) -> None:
        if self._joining is not None:
            self._joining.cancel()
            await asyncio.gather(self._joining, return_exceptions=True)
            self._joining = None
        # A static member only goes away for a while: its session says for how long.
        if self.membership.member_id and self._settings.group_instance_id is None:
            try:
                connection = await self._coordinator("")
                version = connection.version_of(ApiKey.LEAVE_GROUP)
                request = self.membership.leave_request(reason)
                if version < 3:
                    request.members, request.member_id = [], self.membership.member_id
                await connection.call(
                    request, LeaveGroupResponse, timeout_ms=self._settings.request_timeout_ms, version=version
                )
            except OttlaError as error:
                _log.info("group %s: leaving was not confirmed: %s", self.id, error)
            except KafkaError as error:
                _log.info("group %s: leaving was not confirmed: %s", self.id, error)
        self.membership.lost(reason)
        self._lost = True

    def _identity(self) -> tuple[str, int, str | None]:
        if not self.membership.joined:
            return "", -1, None
        return self.membership.member_id, self.membership.generation, self._settings.group_instance_id

    def _commit_failed(self, code: int) -> Outcome:
        outcome = self.membership.commit_failed(code)
        if outcome is Outcome.LOST:
            self._lost = True
        return outcome


class ConsumerGroup(Group):
    """A member of a group of the consumer protocol (KIP-848)."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings, owner: Owner) -> None:
        super().__init__(cluster, settings, owner)
        self.membership = ConsumerMembership(settings, uuid_text(uuid.uuid4().bytes))
        self._lost = False
        self._wake: asyncio.Event = asyncio.Event()
        self._first: asyncio.Future[None] | None = None

    @property
    def busy(self) -> bool:
        return self._lost or self.error is not None or not self._beats() or self._differs()

    def _beats(self) -> bool:
        return self._beating is not None and not self._beating.done()

    def _differs(self) -> bool:
        return self.membership.target is not None and self._target() != self._owner.owned()

    def _target(self) -> set[TopicPartition]:
        names = self._cluster.metadata.topic_names
        return {
            TopicPartition(names[topic_id], number)
            for topic_id, numbers in (self.membership.target or {}).items()
            if topic_id in names
            for number in numbers
        }

    async def poll(self) -> asyncio.Future[None] | None:
        if self.error is not None:
            raise self.error
        if self._lost:
            self._lost = False
            await self._owner.revoke(self._owner.owned(), lost=True)
        if not self._beats():
            self._first = asyncio.get_running_loop().create_future()
            self._start_beating()
        if self.membership.target is None:
            return self._first
        if any(topic_id not in self._cluster.metadata.topic_names for topic_id in self.membership.target):
            await self._cluster.update(await self._owner.subscribed())
        target, owned = self._target(), self._owner.owned()
        if target != owned:
            if owned - target:
                await self._owner.before_revoke()
                await self._owner.revoke(owned - target)
            await self._owner.assign_more(target - owned)
            # The coordinator waits for this: what we gave back, it gives to others.
            self._wake.set()
        return None

    def subscription_changed(self) -> None:
        self._wake.set()

    def _pause_ms(self) -> int:
        return self.membership.interval_ms or self._settings.retry_backoff_ms

    async def _nap(self, pause_ms: int) -> None:
        try:
            async with asyncio.timeout((self.membership.interval_ms or pause_ms) / 1000):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    async def _beat(self) -> None:
        membership = self.membership
        pattern = self._owner.pattern_text()
        topics = set() if pattern is not None else await self._owner.subscribed()
        owned: dict[Uuid, list[int]] = {}
        for topic, number in sorted(self._owner.owned()):
            known = self._cluster.metadata.topics.get(topic)
            if known is not None:
                owned.setdefault(known.id, []).append(number)
        connection = await self._coordinator()
        request = membership.heartbeat_request(topics, pattern, {key: tuple(some) for key, some in owned.items()})
        try:
            response = await connection.call(
                request, ConsumerGroupHeartbeatResponse, timeout_ms=self._settings.request_timeout_ms
            )
        except KafkaError:
            membership.unanswered()
            raise
        outcome = membership.heartbeat_answered(response)
        if outcome is Outcome.COORDINATOR:
            self._coordinator_moved()
        elif outcome is Outcome.LOST:
            self._lost = True
            self._wake.set()
        if self._first is not None and not self._first.done() and membership.target is not None:
            self._first.set_result(None)
        if self.busy:
            self._owner.something_to_do()

    async def leave(self, reason: str) -> None:
        if self.membership.joined:
            try:
                connection = await self._coordinator("")
                await connection.call(
                    self.membership.leave_request(),
                    ConsumerGroupHeartbeatResponse,
                    timeout_ms=self._settings.request_timeout_ms,
                )
            except (OttlaError, KafkaError) as error:
                _log.info("group %s: leaving (%s) was not confirmed: %s", self.id, reason, error)
        self.membership.lost()
        self._lost = True

    def _identity(self) -> tuple[str, int, str | None]:
        if not self.membership.joined:
            return "", -1, None
        return self.membership.member_id, self.membership.epoch, self._settings.group_instance_id

    def _commit_failed(self, code: int) -> Outcome:
        if code == ErrorCode.STALE_MEMBER_EPOCH:
            self._wake.set()
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self.membership.lost()
            self._lost = True
            return Outcome.LOST
        return Outcome.AGAIN
