"""The share consumer's settings: the consumer's without those of a share group, and a few of its own (KIP-932)."""

from __future__ import annotations

from ottla.client.settings.consumer import ConsumerSettings
from ottla.kernel.error import OttlaError
from ottla.settings.client.schema import one_of, setting

#: The consumer settings that a share consumer does not have.
NOT_OF_SHARE_CONSUMERS = frozenset(
    {
        "auto_offset_reset",
        "enable_auto_commit",
        "auto_commit_interval_ms",
        "group_instance_id",
        "isolation_level",
        "partition_assignment_strategy",
        "session_timeout_ms",
        "heartbeat_interval_ms",
        "max_poll_interval_ms",
        "group_protocol",
        "group_remote_assignor",
    }
)


class ShareConsumerSettings(ConsumerSettings):
    """Settings of `ShareConsumer` and `AsyncShareConsumer`."""

    share_acknowledgement_mode: str = setting(
        "share.acknowledgement.mode",
        "implicit",
        one_of("implicit", "explicit"),
        "implicit: a poll accepts the last poll's records. explicit: the program acknowledges each record.",
    )
    share_acquire_mode: str = setting(
        "share.acquire.mode",
        "batch_optimized",
        one_of("batch_optimized", "record_limit"),
        "record_limit: acquire at most max.poll.records; batch_optimized: acquire whole batches (KIP-1206).",
    )

    def check(self, given: frozenset[str]) -> None:
        """Refuse settings that a share group has instead, and require a group."""
        for attribute in sorted(given & NOT_OF_SHARE_CONSUMERS):
            name = attribute.replace("_", ".")
            raise OttlaError(
                f"a share consumer has no {name}: remove it, and set the group's share.{name} if there is one"
            )
        if not self.group_id:
            raise OttlaError("a share consumer needs group.id: set it to its share group")
        object.__setattr__(self, "enable_auto_commit", False)
        object.__setattr__(self, "max_poll_interval_ms", 0x7FFFFFFF)
        super().check(given)
