"""The settings of a client metrics subscription (KIP-714): which clients push which metrics, and how often.

`ottla.controller.config_check` checks the values, with Kafka's messages, which differ from those of other settings.
"""

from __future__ import annotations

from ottla.kernel.validators import Between, ListOf
from ottla.settings.schema import Settings, integer, listing


class ClientMetricsSettings(Settings):
    """The settings of one subscription; a setting without a value has its default."""

    kind = "client metrics setting"

    interval_ms = integer(
        "interval.ms", 300_000, "The interval between two pushes of a client, in ms.", Between(100, 3_600_000)
    )
    match = listing("match", (), "The matching clients, as attribute=pattern pairs; empty matches all.", ListOf())
    metrics = listing("metrics", (), "Prefixes of the names of the requested metrics; * means all.", ListOf())


def matched(pattern: str) -> tuple[str, str] | None:
    """Return (attribute, expression) of an entry of `match`; None if it is no such pair."""
    # As in Java, empty parts at the end do not count.
    parts = pattern.rstrip("=").split("=")
    return (parts[0].strip(), parts[1].strip()) if len(parts) == 2 else None
