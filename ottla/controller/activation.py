"""The first records that a new active controller writes (KIP-868, KIP-966).

Rules:
- An empty log gets the bootstrap records of `format`, in a metadata transaction if the metadata.version has them.
- A transaction that the previous controller left open is aborted. If it was the bootstrap, it is written again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.metadata.feature import METADATA_VERSION_LATEST, TRANSACTIONS_FROM, feature_records, new_cluster_levels
from ottla.metadata.image import BROKER, METADATA_VERSION, Image
from ottla.wire.record.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)

_ELR = "eligible.leader.replicas.version"


def activation_records(image: Image, *, in_transaction: bool, bootstrap: Sequence[Any], min_isr: int) -> list[Any]:
    """Return the records of a new leader, often none. `bootstrap` are the records that `format` left, if any."""
    records: list[Any] = [AbortTransactionRecord(reason="Controller failover")] if in_transaction else []
    if image.metadata_version:
        return records
    bootstrap_records: list[Any] = list(bootstrap) or feature_records(new_cluster_levels(METADATA_VERSION_LATEST, {}))
    levels = {
        record.name: record.feature_level for record in bootstrap_records if isinstance(record, FeatureLevelRecord)
    }
    if levels.get(_ELR, 0) > 0:
        # Eligible leader replicas depend on the cluster's min.insync.replicas, so it must be set.
        bootstrap_records.append(
            ConfigRecord(resource_type=BROKER, resource_name="", name="min.insync.replicas", value=str(min_isr))
        )
    if levels.get(METADATA_VERSION, 0) >= TRANSACTIONS_FROM:
        return [*records, BeginTransactionRecord(name="Bootstrap records"), *bootstrap_records, EndTransactionRecord()]
    return [*records, *bootstrap_records]
