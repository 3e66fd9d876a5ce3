"""What a controller counts of the changes that it follows: elections of partitions' leaders and of controllers.

Rules:
- Every controller counts what it follows while it runs, as in Apache Kafka, not only the active one.
- A new partition has its first leader without an election.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.metadata.image import NO_LEADER, Image, PartitionImage

if TYPE_CHECKING:
    from ottla.broker.metadata.metadata_log import MetadataLog

_RECOVERING = 1


class ClusterChanges:
    """Counts since the node's start. `Observation` has it; `watch` connects it."""

    def __init__(self) -> None:
        #: Leader epochs of partitions that began with a leader.
        self.elections = 0
        #: Elections of a replica that may not have all that was committed.
        self.unclean_elections = 0
        #: Elections of an eligible leader replica (KIP-966).
        self.elections_from_elr = 0
        #: Epochs of the quorum whose leader became known.
        self.active_controllers = 0
        self._epoch = -1

    def watch(self, quorum: MetadataLog) -> None:
        """Follow the metadata and the quorum from now on."""

        def leader_changed() -> None:
            if quorum.leader is not None and quorum.leader_epoch != self._epoch:
                self._epoch = quorum.leader_epoch
                self.active_controllers += 1

        quorum.subscribe(self.follow)
        quorum.subscribe_leader(leader_changed)
        leader_changed()

    def follow(self, old: Image, new: Image) -> None:
        """The metadata went one step on."""
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
