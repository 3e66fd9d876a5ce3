"""A controller's counts of leader elections, of partitions and of the quorum, in the changes that it replays.

Rules:
- Every controller counts what it replays while it runs, as in Apache Kafka, not only the active one.
- The first leader of a new partition is no election.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.metadata.image import NO_LEADER, Image, PartitionImage

if TYPE_CHECKING:
    from ottla.broker.metadata.metadata_log import MetadataLog

_RECOVERING = 1


class ClusterChanges:
    """Counts since the node's start. `Observation` owns it; `watch` connects it."""

    def __init__(self) -> None:
        #: New leader epochs of partitions that have a leader.
        self.elections = 0
        #: Elections of a replica that may lack committed records.
        self.unclean_elections = 0
        #: Elections of an eligible leader replica (KIP-966).
        self.elections_from_elr = 0
        #: Epochs of the quorum with a known leader.
        self.active_controllers = 0
        self._epoch = -1

    def watch(self, quorum: MetadataLog) -> None:
        """Subscribe to the metadata and the quorum."""

        def leader_changed() -> None:
            if quorum.leader is not None and quorum.leader_epoch != self._epoch:
                self._epoch = quorum.leader_epoch
                self.active_controllers += 1

        quorum.subscribe(self.follow)
        quorum.subscribe_leader(leader_changed)
        leader_changed()

    def follow(self, old: Image, new: Image) -> None:
        """Count the elections in one step of the metadata."""
        for name in new.touched_topics(old):
            before, after = old.topics.get(name), new.topics.get(name)
            if before is None or after is None or before.topic_id != after.topic_id:
                continue
            for was, now in zip(before.partitions, after.partitions, strict=False):
                if was is not now and now.leader_epoch > was.leader_epoch and now.leader != NO_LEADER:
                    self._elected(was, now)

    def _elected(self, was: PartitionImage, now: PartitionImage) -> None:
        self.elections += 1
        was_recovering = was.leader_recovery_state == _RECOVERING
        if now.leader_recovery_state == _RECOVERING and not (was_recovering and now.leader in was.isr):
            self.unclean_elections += 1
        if now.leader in was.eligible_leader_replicas:
            self.elections_from_elr += 1
