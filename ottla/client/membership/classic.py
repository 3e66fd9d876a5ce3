"""A member of a group with the classic protocol: join, sync and heartbeats; one member assigns."""

from __future__ import annotations

import asyncio
import logging

from ottla.client.connection.clock import Backoff
from ottla.client.connection.cluster import Cluster
from ottla.client.membership.group import Group, Owner
from ottla.client.membership.membership import ClassicMembership, Outcome, candidates
from ottla.client.settings.consumer import ConsumerSettings
from ottla.kernel.client_error import NotReachable
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition
from ottla.wire.api import ApiKey
from ottla.wire.api.heartbeat import HeartbeatResponse
from ottla.wire.api.join_group import JoinGroupResponse
from ottla.wire.api.leave_group import LeaveGroupResponse
from ottla.wire.api.sync_group import SyncGroupResponse

_log = logging.getLogger("ottla.client")

#: Errors about the generation that a request carried.
_OF_A_GENERATION = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}
)


class ClassicGroupMember(Group):
    """A member of a group with the classic protocol."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings, owner: Owner) -> None:
        super().__init__(cluster, settings, owner)
        self.membership = ClassicMembership(settings)
        self._joining: asyncio.Task[tuple[TopicPartition, ...]] | None = None
        #: The partitions that a leader counted in each topic of the group; 0 if the topic does not exist yet.
        self._partitions: dict[str, int] = {}

    @property
    def joined(self) -> bool:
        return self.membership.joined

    @property
    def busy(self) -> bool:
        due = self.membership.join_reason is not None or self._joining is not None
        return self._lost or due or self.error is not None

    async def poll(self) -> asyncio.Future[None] | None:
        self.raise_error()
        if self._lost:
            await self._owner.revoke(self._owner.owned(), lost=True)
            self._lost = False
        if self._leaving is not None or self._closed:
            return self._leaving
        if self._joining is None:
            if self.membership.join_reason is None:
                return None
            given_up = self._owner.owned()
            if self.membership.cooperative:
                topics = self._owner.subscription()
                given_up = {partition for partition in given_up if partition.topic not in topics}
            if given_up:
                await self._owner.before_revoke()
                await self._owner.revoke(given_up)
                if self._lost:
                    # The member has left, or was removed, during the commit or the listener.
                    return await self.poll()
            self._joining = asyncio.get_running_loop().create_task(self._join())
        if not self._joining.done():
            return self._joining  # type: ignore[return-value]
        try:
            assigned = set(self._joining.result())
        except BaseException:
            self._joining = None
            raise
        if not self.membership.joined:
            # The membership was lost after the join, and its assignment with it.
            self._joining = None
            return await self.poll()
        self._set_identity(self.membership.member_id, self.membership.generation)
        owned = self._owner.owned()
        if self.membership.join_reason is not None:
            # The subscription may have changed since; the next join brings its partitions.
            topics = self._owner.subscription()
            assigned = {partition for partition in assigned if partition.topic in topics}
        if owned - assigned:
            # The next generation gives the revoked partitions to their new owners (KIP-429).
            self.membership.rejoin("partitions were given back")
            await self._owner.before_revoke()
            await self._owner.revoke(owned - assigned)
            if self._lost:
                return await self.poll()
        await self._owner.assign_more(assigned - owned)
        # Not earlier: if this poll is cancelled above, or its listener raises, the next poll does the rest.
        self._joining = None
        # The member has left, or was removed, while the listener heard of its partitions.
        return await self.poll() if self._lost else None

    async def _join(self) -> tuple[TopicPartition, ...]:
        """Join and sync until both succeed. Raises errors that retrying does not cure."""
        backoff = Backoff(self._settings.retry_backoff_ms, self._settings.retry_backoff_max_ms)
        while True:
            try:
                outcome, assigned = await self._join_once()
                if outcome is Outcome.GOOD:
                    self._start_beating()
                    return assigned
                if outcome is Outcome.LOST and self._owner.owned():
                    # A poll gives them up first, and joins again without them.
                    self._lost = True
                    return ()
                if outcome is Outcome.COORDINATOR:
                    self._coordinator_moved()
                if outcome is Outcome.REJOIN:
                    continue
            except (KafkaError, NotReachable) as error:
                if isinstance(error, KafkaError) and not error.code.retriable:
                    raise
                self._moved(error)
            await self._sleep(backoff.next_ms())

    async def _join_once(self) -> tuple[Outcome, tuple[TopicPartition, ...]]:
        membership, settings = self.membership, self._settings
        self._partitions = {}
        topics = await self._owner.subscribed()
        membership.begin_join()
        connection = await self._coordinator()
        # The coordinator answers when all members have joined, each of which may take its time between polls.
        timeout_ms = settings.max_poll_interval_ms + settings.request_timeout_ms
        request = membership.join_request(topics, self._owner.owned())
        joined = await connection.call(request, JoinGroupResponse, timeout_ms=timeout_ms)
        outcome = membership.join_answered(joined)
        if outcome is not Outcome.GOOD:
            return outcome, ()
        partitions = await self._counts(joined) if membership.leads(joined) else None
        sync = membership.sync_request(joined, partitions, self._cluster.metadata.racks(partitions or ()))
        synced = await connection.call(sync, SyncGroupResponse, timeout_ms=timeout_ms)
        return membership.sync_answered(synced)

    async def _counts(self, joined: JoinGroupResponse) -> dict[str, int]:
        wanted = {topic for member in candidates(joined) for topic in member.subscription.topics}
        await self._cluster.update(wanted)
        known = self._cluster.metadata.topics
        self._partitions = {topic: len(known[topic].partitions) if topic in known else 0 for topic in wanted}
        return {topic: count for topic, count in self._partitions.items() if count}

    def subscription_changed(self) -> None:
        self.membership.rejoin("the subscription or its topics have changed")

    def group_topics(self) -> set[str]:
        """The topics of all members, which a leader watches for new partitions; none for other members."""
        return set(self._partitions)

    def topics_changed(self) -> bool:
        """True if a topic of the group has another number of partitions now than when this leader assigned them."""
        known = self._cluster.metadata.topics
        return any(
            topic in known and len(known[topic].partitions) != count for topic, count in self._partitions.items()
        )

    def _pause_ms(self) -> int:
        return self._settings.heartbeat_interval_ms

    async def _beat(self) -> bool:
        if not self.membership.joined or (self._joining is not None and not self._joining.done()):
            return True
        connection = await self._coordinator("")
        request = self.membership.heartbeat_request()
        response = await connection.call(request, HeartbeatResponse, timeout_ms=self._settings.request_timeout_ms)
        if self._is_outdated(response.error_code, request.member_id, request.generation_id):
            return True
        outcome = self.membership.heartbeat_answered(response.error_code)
        if outcome is Outcome.COORDINATOR:
            self._coordinator_moved()
        elif outcome is Outcome.LOST:
            self._lost = True
        if self.busy:
            self._owner.something_to_do()
        return outcome not in (Outcome.COORDINATOR, Outcome.RETRY)

    def _is_outdated(self, code: int, member_id: str, generation: int) -> bool:
        """True if an error is about a generation that this member has left or is leaving (the join has its own
        answer).
        """
        joining = self._joining is not None and not self._joining.done()
        identity = (self.membership.member_id, self.membership.generation)
        return code in _OF_A_GENERATION and (joining or identity != (member_id, generation))

    async def _send_leave(self, reason: str) -> None:
        if self._joining is not None:
            self._joining.cancel()
            await asyncio.gather(self._joining, return_exceptions=True)
            self._joining = None
        # A static member leaves only for a while: its session timeout says for how long.
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
            except (OttlaError, KafkaError) as error:
                _log.info("group %s: leaving was not confirmed: %s", self.id, error)
        self.membership.lost(reason)

    def _commit_failed(self, code: int, member_id: str, generation: int) -> Outcome:
        if self._is_outdated(code, member_id, generation):
            return Outcome.REJOIN
        outcome = self.membership.commit_failed(code)
        if outcome is Outcome.LOST:
            self._lost = True
        return outcome
