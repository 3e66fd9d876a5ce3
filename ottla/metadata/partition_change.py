"""Applies a PartitionChangeRecord to a partition: the only definition of what the record does."""

from __future__ import annotations

from ottla.metadata.image import PartitionImage
from ottla.wire.record.metadata import PartitionChangeRecord

NO_LEADER_CHANGE = -2
NO_RECOVERY_CHANGE = -1


def changed(old: PartitionImage, change: PartitionChangeRecord) -> PartitionImage:
    """Return the partition after the record."""
    leads = change.leader != NO_LEADER_CHANGE
    recovery = change.leader_recovery_state
    return PartitionImage(
        leader=change.leader if leads else old.leader,
        # A record that names the leader starts a leader epoch, even if the leader is the same.
        leader_epoch=old.leader_epoch + leads,
        replicas=old.replicas if change.replicas is None else tuple(change.replicas),
        isr=old.isr if change.isr is None else tuple(change.isr),
        partition_epoch=old.partition_epoch + 1,
        removing_replicas=_or(change.removing_replicas, old.removing_replicas),
        adding_replicas=_or(change.adding_replicas, old.adding_replicas),
        directories=old.directories if change.directories is None else tuple(change.directories),
        eligible_leader_replicas=_or(change.eligible_leader_replicas, old.eligible_leader_replicas),
        last_known_elr=_or(change.last_known_elr, old.last_known_elr),
        leader_recovery_state=old.leader_recovery_state if recovery == NO_RECOVERY_CHANGE else recovery,
    )


def _or(new: list[int] | None, old: tuple[int, ...]) -> tuple[int, ...]:
    return old if new is None else tuple(new)
