"""A consumer's subscription or assigned partitions, and how its group assigns and revokes them.

Rules:
- Partitions are assigned and revoked only within polls, which also call the listener.
- The listener is called before partitions are revoked, and after partitions are assigned.
"""

from __future__ import annotations

import inspect
import logging
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from ottla.client.connection.clock import now_ms
from ottla.client.connection.cluster import Cluster
from ottla.client.consumer.fetcher import Fetcher
from ottla.client.consumer.listener import RebalanceListener
from ottla.client.consumer.metric import ConsumerMeter
from ottla.client.consumer.position import PartitionPosition
from ottla.client.membership.classic import ClassicGroupMember
from ottla.client.membership.consumer import ConsumerGroupMember
from ottla.client.membership.group import Group, end_timeout_ms
from ottla.client.settings.consumer import ConsumerSettings
from ottla.kernel.argument import partitions_of, shown, topic_name, topic_names
from ottla.kernel.client_error import NotReachable
from ottla.kernel.error import KafkaError, OttlaError
from ottla.kernel.ids import INTERNAL_TOPICS, TopicPartition

_log = logging.getLogger("ottla.client")


class SubscriptionCalls(ABC):
    """The part of `AsyncConsumer` for subscriptions and assignment; also what its `Group` calls."""

    settings: ConsumerSettings
    meter: ConsumerMeter
    _cluster: Cluster
    _positions: dict[TopicPartition, PartitionPosition]
    _lock: threading.Lock
    _fetcher: Fetcher
    _group: Group | None
    _names: frozenset[str]
    #: Topics whose existence was already checked.
    _existence_checked: frozenset[str]
    _pattern: re.Pattern[str] | str | None
    #: The topics that the pattern matched when the group was last told; None before that.
    _known_topics: frozenset[str] | None
    _listener: RebalanceListener | None
    #: Did `assign` choose the partitions? The group then only takes commits.
    _is_manual = False
    #: Calls a listener's method; the synchronous consumer replaces it to call in the program's thread.
    _call: Callable[[Callable[..., Any], list[TopicPartition]], Awaitable[None]]

    @abstractmethod
    def something_to_do(self) -> None:
        """Wake a waiting poll."""

    @abstractmethod
    def return_in_hand(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Move positions back to the records that an iteration has left."""

    @abstractmethod
    def _begin_auto_commit(self, group: Group) -> None:
        """Commit in the background what earlier polls returned."""

    @abstractmethod
    async def before_revoke(self, timeout_ms: int | None = None) -> None:
        """Commit the consumed offsets, with auto-commit."""

    def subscribe(
        self, topics: Iterable[str] | str | re.Pattern[str], *, listener: RebalanceListener | None = None
    ) -> None:
        """Read these topics as a member of `group.id`, replacing the last subscription.

        `topics` is a list of names, or a compiled pattern that names must match in full. With group.protocol=consumer a
        string that starts with "^" is a pattern that the broker evaluates (KIP-848). `listener` is called when
        partitions are assigned and revoked. OttlaError without group.id.
        """
        if listener is not None and not isinstance(listener, RebalanceListener):
            raise TypeError(f"invalid listener: {shown(listener)} (expected a RebalanceListener)")
        if self.settings.group_id is None:
            raise OttlaError("subscribe needs group.id; without a group, use assign")
        if self._is_manual:
            raise OttlaError("this consumer has partitions assigned by hand: unsubscribe first")
        self._listener = listener
        if isinstance(topics, re.Pattern) or (isinstance(topics, str) and topics.startswith("^")):
            self._pattern, self._names = topics, frozenset()
        else:
            self._pattern, self._names = None, frozenset(topic_names(topics))
        self._cluster.metadata.want_all(self._pattern is not None, now_ms())
        if self._group is None:
            kind = ConsumerGroupMember if self.settings.group_protocol == "consumer" else ClassicGroupMember
            self._group = kind(self._cluster, self.settings, self)
        else:
            self._group.subscription_changed()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without group membership; commits still go to group.id, if set.

        OttlaError while this consumer is subscribed.
        """
        if self._group is not None and self._names | frozenset([self._pattern] if self._pattern else []):
            raise OttlaError("this consumer is subscribed: unsubscribe first")
        wanted = partitions_of(partitions)
        for partition in wanted:
            topic_name(partition.topic)
        self._is_manual = True
        if self.settings.enable_auto_commit and self._group is not None and set(self._positions) - set(wanted):
            # No rebalance follows that would do it.
            self._begin_auto_commit(self._group)
        self.return_in_hand(set(self._positions) - set(wanted))
        with self._lock:
            for gone in set(self._positions) - set(wanted):
                del self._positions[gone]
            for partition in wanted:
                self._positions.setdefault(partition, PartitionPosition(partition))
        self._fetcher.all_positioned = False
        self._cluster.metadata.want({partition.topic for partition in wanted}, now_ms())
        if self.settings.group_id is not None and self._group is None:
            self._group = ClassicGroupMember(self._cluster, self.settings, self)
        self.something_to_do()

    async def unsubscribe(self) -> None:
        """Stop reading and leave the group."""
        try:
            if self._group is not None:
                await self._leave(self._group, "the consumer unsubscribed", now_ms() + end_timeout_ms(self.settings))
        finally:
            self._group = None
            self._is_manual = False
            self.return_in_hand()
            with self._lock:
                self._positions.clear()
            self._names, self._pattern, self._listener = frozenset(), None, None
            self._cluster.metadata.want_all(False, now_ms())

    async def _leave(self, group: Group, reason: str, deadline_ms: int) -> None:
        """Commit, revoke the partitions and leave; an error of the listener is raised after leaving."""
        try:
            if not group.lost:
                await self.before_revoke(deadline_ms - now_ms())
            if self._has_subscription():
                await self.revoke(set(self._positions), lost=group.lost)
        finally:
            await group.end(reason, deadline_ms, leaves=self._has_subscription())

    def assignment(self) -> set[TopicPartition]:
        """The partitions assigned now."""
        return set(self._positions)

    def subscription(self) -> set[str]:
        """The subscribed topics; for a pattern, the topics known to match it."""
        return self._matching() if self._pattern is not None else set(self._names)

    # ---- called by the group

    async def subscribed(self) -> set[str]:
        """The topics of the subscription; a pattern is matched against all topics of the cluster."""
        if self._pattern is not None:
            if not self._cluster.metadata.has_all_topics or self._cluster.metadata.update_due_ms() <= now_ms():
                await self._cluster.update()
            matching = self._matching()
            self._known_topics = frozenset(matching)
            return matching
        await self.warn_of_missing(self._names)
        self._cluster.metadata.want(self._names, now_ms())
        return set(self._names)

    def topics_in_use(self) -> set[str]:
        """The topics to keep in the metadata beside those that are read: the subscription's, and a leader's."""
        return self._group.group_topics() | self._names if isinstance(self._group, ClassicGroupMember) else set()

    async def warn_of_missing(self, topics: Iterable[str]) -> None:
        """Log, once for each, which of these topics do not exist: a mistyped name would otherwise just read nothing."""
        left = set(topics) - self._existence_checked
        if not left:
            return
        try:
            missing = await self._cluster.missing(left)
        except (KafkaError, NotReachable):
            return
        self._existence_checked |= left
        creates = self.settings.allow_auto_create_topics
        for name in missing:
            _log.warning(
                "topic %s does not exist: %s",
                name,
                "the metadata request creates it, if the brokers allow that (allow.auto.create.topics=true)"
                if creates
                else "waiting until it is created",
            )

    def _matching(self) -> set[str]:
        pattern = self._pattern
        assert pattern is not None
        return {
            name
            for name in self._cluster.metadata.topics
            if re.fullmatch(pattern, name) and not (self.settings.exclude_internal_topics and name in INTERNAL_TOPICS)
        }

    def pattern_text(self) -> str | None:
        """The pattern that the broker evaluates, with group.protocol=consumer; None for anything else."""
        return self._pattern if isinstance(self._pattern, str) else None

    def owned(self) -> set[TopicPartition]:
        """The assigned partitions."""
        return set(self._positions)

    async def revoke(self, partitions: set[TopicPartition], *, lost: bool = False) -> None:
        """Remove partitions after calling the listener; they are removed even if the listener raises."""
        if not partitions:
            return
        try:
            if self._listener is not None:
                callback = self._listener.lost if lost else self._listener.revoked
                await self._call(callback, sorted(partitions))
        finally:
            with self._lock:
                for partition in partitions:
                    self._positions.pop(partition, None)

    async def assign_more(self, partitions: set[TopicPartition]) -> None:
        """Add partitions, then call the listener.

        A topic deleted in the meantime is added, too, until the next rebalance: waiting for it would stop the others.
        """
        self.meter.rebalanced()
        with self._lock:
            for partition in sorted(partitions):
                self._positions[partition] = PartitionPosition(partition)
        self._fetcher.all_positioned = False
        if self._listener is not None:
            await self._call(self._listener.assigned, sorted(partitions))

    def _has_subscription(self) -> bool:
        return bool(self._names) or self._pattern is not None

    def _on_metadata(self) -> None:
        if self._cluster.metadata.untold:
            self.something_to_do()
        if self._group is None or not self._has_subscription():
            return
        changed = isinstance(self._group, ClassicGroupMember) and self._group.topics_changed()
        if isinstance(self._pattern, re.Pattern) and self._known_topics not in (None, self._matching()):
            changed = True
        if changed:
            self._group.subscription_changed()
            self.something_to_do()


async def call_here(method: Callable[..., Any], partitions: list[TopicPartition]) -> None:
    """Call a listener's method on the loop, and await it if it is a coroutine."""
    result = method(partitions)
    if inspect.isawaitable(result):
        await result
