"""A member of a group with the consumer protocol: it only sends heartbeats, and the broker assigns (KIP-848).

Rules:
- The coordinator assigns topic ids, and the metadata has their names. A member keeps the names of its own topics: only
  the coordinator takes a partition away, never a broker whose metadata lack the topic.
- A topic without a name yet does not hold up the others. Polls look it up again, after a growing pause.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any

from ottla.client.connection.clock import Backoff, random_uuid
from ottla.client.connection.cluster import Cluster
from ottla.client.membership.group import Group, Owner
from ottla.client.membership.membership import ConsumerMembership, Outcome
from ottla.client.settings.consumer import ConsumerSettings
from ottla.kernel.client_error import NotReachable, StaleEpoch
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
        #: The names of the topics in the assignment, as far as the metadata have shown them.
        self._names: dict[Uuid, str] = {}
        #: The pause after a look-up of missing names.
        self._pausing = False
        self._resolve_backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms)

    @property
    def joined(self) -> bool:
        return self.membership.joined

    @property
    def busy(self) -> bool:
        return self._lost or self.error is not None or not self._is_beating() or self._differs()

    def _is_beating(self) -> bool:
        return self._heartbeats is not None and not self._heartbeats.done()

    def _differs(self) -> bool:
        return self.membership.target is not None and (self._unresolved() or self._target() != self._owner.owned())

    def _name(self, topic_id: Uuid) -> str | None:
        return self._cluster.metadata.topic_names.get(topic_id) or self._names.get(topic_id)

    def _unresolved(self) -> bool:
        return any(self._name(topic_id) is None for topic_id in self.membership.target or ())

    def _target(self) -> set[TopicPartition]:
        return {
            TopicPartition(name, number)
            for topic_id, numbers in (self.membership.target or {}).items()
            if (name := self._name(topic_id)) is not None
            for number in numbers
        }

    async def _resolve(self) -> None:
        """Look up the names of the assigned topics. If the brokers do not have them yet, polls try again."""
        if self._pausing:
            return
        self._pausing = True
        asyncio.get_running_loop().call_later(self._resolve_backoff.next_ms() / 1000, self._paused)
        with suppress(KafkaError, NotReachable):
            await self._cluster.update(await self._owner.subscribed())

    def _paused(self) -> None:
        self._pausing = False
        self._owner.something_to_do()

    async def poll(self) -> asyncio.Future[None] | None:
        self.raise_error()
        if self._lost:
            await self._owner.revoke(self._owner.owned(), lost=True)
            self._lost = False
            self._first_assignment = asyncio.get_running_loop().create_future()
            self._wake.set()
        if self._leaving is not None or self._closed:
            # The last assignment is over.
            return self._leaving
        if not self._is_beating():
            self._first_assignment = asyncio.get_running_loop().create_future()
            self._start_beating()
        if self.membership.target is None:
            return self._first_assignment
        if self._unresolved():
            await self._resolve()
        else:
            self._resolve_backoff.attempts = 0
        target, owned = self._target(), self._owner.owned()
        if target != owned:
            if owned - target:
                await self._owner.before_revoke()
                await self._owner.revoke(owned - target)
                if self._lost:
                    # The member has left, or was removed, during the commit or the listener.
                    return await self.poll()
            # A heartbeat may have brought another target; one that comes during the listener reports what is added.
            self._keep_names()
            await self._owner.assign_more(self._target() - self._owner.owned())
            if self._lost:
                return await self.poll()
            # The coordinator waits for this to give the revoked partitions to other members.
            self._wake.set()
        self._keep_names()
        return None

    def _keep_names(self) -> None:
        """Keep the names of the topics that this member owns, or will own."""
        topics = {partition.topic for partition in self._owner.owned()}
        wanted = self.membership.target or {}
        names = {each: name for each in (*self._names, *wanted) if (name := self._name(each)) is not None}
        # A new dict: the thread of a synchronous consumer reads it at the same time.
        self._names = {each: name for each, name in names.items() if each in wanted or name in topics}

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
        if self.lost or self._leaving is not None:
            return True
        ids = {name: topic_id for topic_id, name in self._names.items()}
        owned: dict[Uuid, list[int]] = {}
        for topic, number in sorted(self._owner.owned()):
            owned.setdefault(ids[topic], []).append(number)
        request = membership.heartbeat_request(topics, pattern, {key: tuple(numbers) for key, numbers in owned.items()})
        membership.asked = True
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

    async def _send_leave(self, reason: str) -> None:
        try:
            if self.membership.asked:
                # On the connection of the heartbeats: one may be on its way to join.
                connection = await self._coordinator()
                request = self.membership.leave_request()
                await connection.call(request, self.response, timeout_ms=self._settings.request_timeout_ms)
        except (OttlaError, KafkaError) as error:
            _log.info("group %s: leaving (%s) was not confirmed: %s", self.id, reason, error)
        finally:
            self.membership.lost()

    def _reader(self) -> tuple[str | None, int]:
        return (self.membership.member_id, self.membership.epoch) if self.joined else (None, -1)

    def _read_refused(self, code: int, member_id: str | None, epoch: int) -> None:
        if code and self._commit_failed(code, member_id or "", epoch) is not Outcome.RETRY:
            self._owner.something_to_do()
        elif code != ErrorCode.STALE_MEMBER_EPOCH:
            return
        raise StaleEpoch(f"reading the committed offsets of group {self.id}")

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
