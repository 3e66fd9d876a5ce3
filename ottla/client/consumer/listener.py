"""The callbacks of a program for partitions that are assigned and revoked."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.kernel.ids import TopicPartition


class RebalanceListener:
    """Callbacks for a consumer's rebalances, called from within polls.

    Override the methods you need; with `AsyncConsumer` they may be coroutines. The default methods do nothing.
    """

    def assigned(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        """Called after partitions are assigned to this consumer. The method may call `seek`."""

    def revoked(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        """Called before partitions are revoked: the last chance to commit their offsets."""

    def lost(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        """Called when partitions already belong to another member: do not commit. Calls `revoked` by default."""
        return self.revoked(partitions)
