"""What a program may do when partitions come and go."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.kernel.ids import TopicPartition


class RebalanceListener:
    """Told when partitions come and go. Override what you need; methods may be coroutines with `AsyncConsumer`."""

    def assigned(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        """They are ours now; positions may be set by `seek`."""

    def revoked(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        """They will be another's after this: the last moment to commit."""

    def lost(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        """They are another's already: do not commit. As `revoked` unless overridden."""
        return self.revoked(partitions)
