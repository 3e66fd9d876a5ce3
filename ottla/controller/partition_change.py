"""The target state of a partition -> the record of the change (Apache Kafka's PartitionChangeBuilder).

Rules, in this order:
- A reassignment completes when the ISR contains every added replica and one that stays (0750).
- While its ISR is smaller than min.insync.replicas, a partition keeps replicas that leave the ISR as eligible leader
  replicas (ELR): they have every committed record. With a sufficient ISR, the ELR is empty (KIP-966).
- Only replicas of the partition are eligible: a replica that a reassignment removed falls behind, and may be added
  again later (0410).
- An unusable leader is replaced by a member of the ISR; by one of the ELR if the ISR is empty; by the last known leader
  if both are empty; by any replica if the topic allows it. The last two are unclean: the new leader is alone in the
  ISR and recovers (KIP-704).
- A leader epoch starts with a new leader, when a replica leaves the partition, and up to metadata.version 3.5 when a
  replica leaves the ISR.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any

from ottla.controller.placement import MIGRATING_DIRECTORY, default_directory, may_lead
from ottla.controller.topic_rules import TopicRules
from ottla.kernel.ids import Uuid
from ottla.metadata.feature import DIRECTORIES_FROM
from ottla.metadata.image import NO_LEADER, Image, PartitionImage, TopicImage
from ottla.wire.record.metadata import PartitionChangeRecord

RECOVERED, RECOVERING = 0, 1
#: From 3.6 on, a shrinking ISR starts no leader epoch.
_NO_EPOCH_ON_SHRINK_FROM = 12


class ElectionKind(IntEnum):
    """The replicas that an election may choose."""

    #: The current leader, or another in-sync replica.
    ONLINE = 0
    #: The first replica, if it is in sync.
    PREFERRED = 1
    #: As ONLINE, or any replica if none is in sync.
    UNCLEAN = 2


class PartitionChange:
    """A change of one partition: set the target state, then call `build` once."""

    def __init__(
        self, image: Image, rules: TopicRules, topic: TopicImage, index: int, partition: PartitionImage
    ) -> None:
        self._image = image
        self._topic_id = topic.topic_id
        self._index = index
        self._old = partition
        self._elr = image.has_elr
        self._min_isr = rules.min_isr
        #: The fields of the record.
        self._fields: dict[str, Any] = {}
        self.isr = list(partition.isr)
        self.replicas = list(partition.replicas)
        self.removing = list(partition.removing_replicas)
        self.adding = list(partition.adding_replicas)
        self.recovery = partition.leader_recovery_state
        #: Broker -> the new directory of its replica, for replicas that move.
        self.directories: dict[int, Uuid] = {}
        #: Replicas that may have lost committed records and are not eligible leaders.
        self.unclean: tuple[int, ...] = ()
        self.election = ElectionKind.ONLINE
        self.acceptable: Callable[[int], bool] = self._may_lead
        self._eligible = list(partition.eligible_leader_replicas)

    def _may_lead(self, broker_id: int) -> bool:
        """As Apache Kafka's LeaderAcceptor; of a replica that moves, the new directory counts, too."""
        return may_lead(self._image, self._old, broker_id, self.directories.get(broker_id))

    def build(self) -> PartitionChangeRecord | None:
        """Return the record; None if nothing changes."""
        old, fields = self._old, self._fields
        if self.removing or self.adding:
            self._complete_reassignment()
        if self._elr:
            self._update_elr()
        self._elect()
        is_moved = self.replicas != list(old.replicas)
        if is_moved and "leader" not in fields and not set(old.replicas) <= set(self.replicas):
            fields["leader"] = old.leader
        if "isr" in fields or not self._elr:
            self._eligible = []
        if self._eligible != list(old.eligible_leader_replicas):
            fields["eligible_leader_replicas"] = self._eligible
        # Before KIP-966 the last member stays in the ISR.
        if "isr" not in fields and (self.isr or self._elr) and self.isr != list(old.isr):
            fields["isr"] = self.isr
        shrinks = "isr" in fields and not set(old.isr) <= set(self.isr)
        if shrinks and self._image.metadata_version < _NO_EPOCH_ON_SHRINK_FROM and "leader" not in fields:
            fields["leader"] = old.leader
        self._note_last_leader()
        self._assign(is_moved)
        if self.recovery != old.leader_recovery_state:
            fields["leader_recovery_state"] = self.recovery
        if not fields:
            return None
        return PartitionChangeRecord(topic_id=self._topic_id, partition_id=self._index, **fields)

    def _complete_reassignment(self) -> None:
        isr = _without(self.isr, self.removing)
        replicas = _without(self.replicas, self.removing)
        # A later reassignment may remove a replica that is still being added.
        adding = _without(self.adding, self.removing)
        if not isr or not replicas or not set(adding) <= set(isr):
            return
        if len(adding) < len(self.removing) and not set(replicas) <= set(isr):
            return
        self.isr, self.replicas, self.removing, self.adding = isr, replicas, [], []

    def _update_elr(self) -> None:
        if len(self.isr) >= self._min_isr:
            self._eligible = []
            return
        excluded = {*self.isr, *self.unclean}
        self._eligible = sorted(({*self._eligible, *self._old.isr} - excluded) & {*self.replicas})

    def _elect(self) -> None:
        leader, unclean = self._leader()
        if leader == self._old.leader:
            return
        if leader in self._eligible:
            self.isr = [leader]
            self._eligible = _without(self._eligible, [leader])
        self._fields["leader"] = leader
        if unclean:
            self._fields["isr"] = [leader]
            if self._old.leader_recovery_state != RECOVERING:
                self._fields["leader_recovery_state"] = RECOVERING

    def _leader(self) -> tuple[int, bool]:
        """Return the leader, and whether its election is unclean."""
        candidates = [self._old.leader, *self.replicas]
        if self.election is ElectionKind.PREFERRED:
            candidates.insert(0, self.replicas[0])
        for replica in candidates:
            if self._is_clean(replica):
                return replica, False
        last = self._old.last_known_elr
        if self._elr and not self.isr and not self._eligible and len(last) == 1 and self.acceptable(last[0]):
            return last[0], True
        if self.election is ElectionKind.UNCLEAN:
            for replica in self.replicas:
                if self.acceptable(replica):
                    return replica, True
        return NO_LEADER, False

    def _is_clean(self, replica: int) -> bool:
        holds_all = replica in self.isr or (not self.isr and replica in self._eligible)
        return holds_all and self.acceptable(replica)

    def _note_last_leader(self) -> None:
        """Record the last known leader while there is no leader."""
        leader = self._fields.get("leader")
        if not self._elr or leader is None:
            return
        last = self._old.last_known_elr
        if leader == NO_LEADER and not last:
            self._fields["last_known_elr"] = [self._old.leader]
        elif leader != NO_LEADER and last:
            self._fields["last_known_elr"] = []

    def _assign(self, is_moved: bool) -> None:
        old, fields = self._old, self._fields
        if (is_moved or self.directories) and self._image.metadata_version >= DIRECTORIES_FROM:
            current = list(old.directories) or [MIGRATING_DIRECTORY] * len(old.replicas)
            known = dict(zip(old.replicas, current, strict=True)) | self.directories
            places = [
                known[replica] if replica in known else default_directory(self._image, replica)
                for replica in self.replicas
            ]
            if places != current:
                fields["directories"] = places
        if is_moved:
            fields["replicas"] = self.replicas
        if self.removing != list(old.removing_replicas):
            fields["removing_replicas"] = self.removing
        if self.adding != list(old.adding_replicas):
            fields["adding_replicas"] = self.adding


def allowed_election(rules: TopicRules) -> ElectionKind:
    """Return the kind of election that the topic allows when its leader is gone."""
    return ElectionKind.UNCLEAN if rules.may_be_unclean else ElectionKind.ONLINE


def _without(replicas: Iterable[int], removed: Iterable[int]) -> list[int]:
    removed = set(removed)
    return [replica for replica in replicas if replica not in removed]
