"""A member of a group with the consumer protocol: it only sends heartbeats, and the broker assigns (KIP-848)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from ottla.client.connection.clock import random_uuid
from ottla.client.connection.cluster import Cluster
from ottla.client.membership.group import Group, Owner
from ottla.client.membership.membership import ConsumerMembership, Outcome
from ottla.client.settings.consumer import ConsumerSettings
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition, Uuid, uuid_text
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

_log = logging.getLogger("ottla.client")


class ConsumerGroupMember(Group):
    """A member of a group with the consumer protocol (KIP-848)."""

    #: The message class of heartbeat answers.
    response: type[Any] = ConsumerGroupHeartbeatResponse

    def __init__(self, cluster: Cluster, settings: ConsumerSettings, owner: Owner) -> None:
        super().__init__(cluster, settings, owner)
        self.membership: ConsumerMembership = ConsumerMembership(settings, uuid_text(random_uuid()))
        self._wake: asyncio.Event = asyncio.Event()
        self._first_assignment: asyncio.Future[None] | None = None

    @property
    def busy(self) -> bool:
        return self._lost or self.error is not None or not self._is_beating() or self._differs()

    def _is_beating(self) -> bool:
        return self._heartbeats is not None and not self._heartbeats.done()

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
        self.raise_error()
        if self._lost:
            await self._owner.revoke(self._owner.owned(), lost=True)
            self._lost = False
            self._first_assignment = asyncio.get_running_loop().create_future()
            self._wake.set()
        if not self._is_beating():
            self._first_assignment = asyncio.get_running_loop().create_future()
            self._start_beating()
        if self.membership.target is None:
            return self._first_assignment
        if any(topic_id not in self._cluster.metadata.topic_names for topic_id in self.membership.target):
            await self._cluster.update(await self._owner.subscribed())
        target, owned = self._target(), self._owner.owned()
        if target != owned:
            if owned - target:
                await self._owner.before_revoke()
                await self._owner.revoke(owned - target)
            # A heartbeat may have brought another target in the meantime.
            await self._owner.assign_more(self._target() - self._owner.owned())
            # The coordinator waits for this to give the revoked partitions to other members.
            self._wake.set()
        return None

    def subscription_changed(self) -> None:
        self._wake.set()

    def _pause_ms(self) -> int:
        return self.membership.interval_ms or self._settings.retry_backoff_ms

    async def _sleep(self, pause_ms: int) -> None:
        try:
            async with asyncio.timeout(pause_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    async def _beat(self) -> bool:
        if self._lost:
            return True
        membership = self.membership
        pattern = self._owner.pattern_text()
        topics = set() if pattern is not None else await self._owner.subscribed()
        connection = await self._coordinator()
        owned: dict[Uuid, list[int]] = {}
        for topic, number in sorted(self._owner.owned()):
            known = self._cluster.metadata.topics.get(topic)
            if known is not None:
                owned.setdefault(known.id, []).append(number)
        request = membership.heartbeat_request(topics, pattern, {key: tuple(numbers) for key, numbers in owned.items()})
        try:
            response = await connection.call(request, self.response, timeout_ms=self._settings.request_timeout_ms)
        except KafkaError:
            membership.unanswered()
            raise
        outcome = membership.heartbeat_answered(response)
        if outcome is Outcome.GOOD:
            self._set_identity(membership.member_id, membership.epoch)
        elif outcome is Outcome.COORDINATOR:
            self._coordinator_moved()
        elif outcome is Outcome.LOST:
            self._lost = True
        if self._first_assignment is not None and not self._first_assignment.done() and membership.target is not None:
            self._first_assignment.set_result(None)
        if self.busy:
            self._owner.something_to_do()
        return outcome not in (Outcome.COORDINATOR, Outcome.RETRY)

    async def leave(self, reason: str) -> None:
        if self.membership.joined:
            try:
                connection = await self._coordinator("")
                await connection.call(
                    self.membership.leave_request(),
                    self.response,
                    timeout_ms=self._settings.request_timeout_ms,
                )
            except (OttlaError, KafkaError) as error:
                _log.info("group %s: leaving (%s) was not confirmed: %s", self.id, reason, error)
        self.membership.lost()
        self._lost = True

    def _commit_failed(self, code: int, member_id: str, generation: int) -> Outcome:
        if code == ErrorCode.STALE_MEMBER_EPOCH:
            self._wake.set()
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            if (self.membership.member_id, self.membership.epoch) != (member_id, generation):
                # The error is about an earlier membership.
                return Outcome.REJOIN
            self.membership.lost()
            self._lost = True
            return Outcome.LOST
        return Outcome.RETRY
