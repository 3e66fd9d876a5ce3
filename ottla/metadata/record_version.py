"""The version in which each metadata record is written, as determined by the cluster's `metadata.version`."""

from __future__ import annotations

from typing import Any

from ottla.metadata.feature import CORDONED_DIRECTORIES_FROM, DIRECTORIES_FROM, ELR_FROM
from ottla.wire.record.metadata import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)

_ZK_MIGRATION_FROM = 8


def record_version(record: Any, metadata_version: int) -> int:
    """Return the version of one record. A registration change uses the lowest version that fits, as in Kafka."""
    kind = type(record)
    if kind is PartitionRecord or kind is PartitionChangeRecord:
        return (metadata_version >= DIRECTORIES_FROM) + (metadata_version >= ELR_FROM)
    if kind is RegisterBrokerRecord:
        steps = (_ZK_MIGRATION_FROM, DIRECTORIES_FROM, CORDONED_DIRECTORIES_FROM)
        return 1 + sum(metadata_version >= step for step in steps)
    if kind is BrokerRegistrationChangeRecord:
        if record.cordoned_log_dirs is not None:
            return 3
        return 2 if record.log_dirs else 1 if record.in_controlled_shutdown else 0
    return 0
