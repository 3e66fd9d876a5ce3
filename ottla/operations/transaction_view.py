"""Transactional ids as `ottla transactions` shows them: producer, coordinator, and how long each has been open."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.client import Admin


@dataclass(frozen=True, slots=True)
class TransactionSummary:
    """A transactional id. `coordinator` is a node id; `partitions` counts those that the transaction writes to."""

    id: str
    #: Kafka's name: Empty, Ongoing, PrepareCommit, CompleteAbort, ...
    state: str
    producer: int
    coordinator: int
    partitions: int
    #: Since the transaction began; None while none is open.
    open_ms: int | None


def transactions(ask: Admin) -> list[TransactionSummary]:
    """Return all transactional ids of the cluster. One that cannot be described has no partitions."""
    listed = ask.list_transactions()
    described = ask.describe_transactions(listing.transactional_id for listing in listed).succeeded
    now = time.time_ns() // 1_000_000
    rows = []
    for listing in listed:
        about = described.get(listing.transactional_id)
        began = about.start_timestamp if about is not None and listing.state == "Ongoing" else None
        rows.append(
            TransactionSummary(
                listing.transactional_id,
                listing.state,
                listing.producer_id,
                listing.coordinator.id,
                0 if about is None else len(about.partitions),
                None if began is None else now - began,
            )
        )
    return rows
