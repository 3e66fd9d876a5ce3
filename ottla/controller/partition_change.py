"""What a partition is to become -> the record that makes it so (Apache Kafka's PartitionChangeBuilder).

Rules, in this order:
- A reassignment is completed when the ISR has every replica that is added and one that stays.
- Below its least ISR a partition keeps those that leave the ISR as eligible leader replicas (ELR): they hold every
  committed record. At the least ISR there are none (KIP-966).
- Only replicas are eligible: one that a reassignment drops stays behind, and may be added again later (0410).
- A leader that is no longer right is replaced: by a member of the ISR, of the ELR when the ISR is empty, by the last
  leader known when both are, and by any replica when that is allowed. Those two are unclean: the ISR is that leader
  alone, and it recovers (KIP-704).
- A leader epoch begins with a leader and when a replica leaves the partition, and until metadata.version 3.5 when one
  leaves the ISR.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum

from ottla.controller.placement import MIGRATING_DIRECTORY, default_directory, may_lead
from ottla.controller.topic_rules import may_be_unclean, min_isr
from ottla.kernel.ids import Uuid
from ottla.metadata.feature import DIRECTORIES_FROM
from ottla.metadata.image import NO_LEADER, Image, PartitionImage, TopicImage
from ottla.metadata.partition_change import NO_LEADER_CHANGE
from ottla.settings.server.settings import ServerSettings
from ottla.wire.record.metadata import PartitionChangeRecord

RECOVERED, RECOVERING = 0, 1
#: From 3.6 on an ISR that shrinks begins no leader epoch.
_NO_EPOCH_ON_SHRINK_FROM = 12


class ElectionKind(IntEnum):
    """Which leader is wanted."""

    #: The one there is, or another in sync.
    ONLINE = 0
    #: The first replica, when it is in sync.
    PREFERRED = 1
    #: As ONLINE, and any replica when none is in sync.
    UNCLEAN = 2


class PartitionChange:
    """One change of one partition; set what is wanted, then `build`. It is used once."""

    def __init__(
        self, image: Image, settings: ServerSettings, topic: TopicImage, index: int, partition: PartitionImage
    ) -> None:
        self._image = image
        self._topic_id = topic.topic_id
        self._index = index
        self._old = partition
        self._elr = image.has_elr
        self._min_isr = min_isr(image, settings, topic)
        self.isr = list(partition.isr)
        self.replicas = list(partition.replicas)
        self.removing = list(partition.removing_replicas)
        self.adding = list(partition.adding_replicas)
        self.recovery = partition.leader_recovery_state
        #: Broker -> where its replica lies from now on.
        self.directories: dict[int, Uuid] = dict(zip(partition.replicas, _places(partition), strict=True))
        #: Replicas that may have lost committed records: they are no eligible leaders.
        self.unclean: tuple[int, ...] = ()
        self.election = ElectionKind.ONLINE
        self.acceptable: Callable[[int], bool] = lambda broker_id: may_lead(image, partition, broker_id)
        self._eligible = list(partition.eligible_leader_replicas)

    def build(self) -> PartitionChangeRecord | None:
        """The record, None when nothing changes."""
        old = self._old
        record = PartitionChangeRecord(topic_id=self._topic_id, partition_id=self._index)
        self._complete_reassignment()
        self._keep_eligible()
        self._elect(record)
        if record.leader == NO_LEADER_CHANGE and not set(old.replicas) <= set(self.replicas):
            record.leader = old.leader
        if record.isr is not None or not self._elr:
            self._eligible = []
        if self._eligible != list(old.eligible_leader_replicas):
            record.eligible_leader_replicas = self._eligible
        # Before KIP-966 the last of the ISR stays in it.
        if record.isr is None and (self.isr or self._elr) and self.isr != list(old.isr):
            record.isr = self.isr
        shrinks = record.isr is not None and not set(old.isr) <= set(record.isr)
        if self._image.metadata_version < _NO_EPOCH_ON_SHRINK_FROM and shrinks and record.leader == NO_LEADER_CHANGE:
            record.leader = old.leader
        self._note_last_leader(record)
        self._assign(record)
        if self.recovery != old.leader_recovery_state:
            record.leader_recovery_state = self.recovery
        return None if record == PartitionChangeRecord(topic_id=self._topic_id, partition_id=self._index) else record

    def _complete_reassignment(self) -> None:
        if not (self.removing or self.adding):
            return
        isr = _without(self.isr, self.removing)
        replicas = _without(self.replicas, self.removing)
        if not isr or not replicas or not set(self.adding) <= set(isr):
            return
        if len(self.adding) < len(self.removing) and not set(replicas) <= set(isr):
            return
        self.isr, self.replicas, self.removing, self.adding = isr, replicas, [], []

    def _keep_eligible(self) -> None:
        if not self._elr:
            return
        if len(self.isr) >= self._min_isr:
            self._eligible = []
            return
        gone = {*self.isr, *self.unclean}
        self._eligible = sorted(({*self._eligible, *self._old.isr} - gone) & {*self.replicas})

    def _elect(self, record: PartitionChangeRecord) -> None:
        leader, unclean = self._leader()
        if leader == self._old.leader:
            return
        if leader in self._eligible:
            self.isr = [leader]
            self._eligible = _without(self._eligible, [leader])
        record.leader = leader
        if unclean:
            record.isr = [leader]
            if self._old.leader_recovery_state != RECOVERING:
                record.leader_recovery_state = RECOVERING

    def _leader(self) -> tuple[int, bool]:
        """The leader, and whether it may lack committed records."""
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

    def _note_last_leader(self, record: PartitionChangeRecord) -> None:
        """Who led last is known while nobody leads."""
        if not self._elr or record.leader == NO_LEADER_CHANGE:
            return
        last = self._old.last_known_elr
        if record.leader == NO_LEADER and not last:
            record.last_known_elr = [self._old.leader]
        elif record.leader != NO_LEADER and last:
            record.last_known_elr = []

    def _assign(self, record: PartitionChangeRecord) -> None:
        old = self._old
        if self._image.metadata_version >= DIRECTORIES_FROM:
            places = [
                self.directories[replica] if replica in self.directories else default_directory(self._image, replica)
                for replica in self.replicas
            ]
            if places != _places(old):
                record.directories = places
        if self.replicas != list(old.replicas):
            record.replicas = self.replicas
        if self.removing != list(old.removing_replicas):
            record.removing_replicas = self.removing
        if self.adding != list(old.adding_replicas):
            record.adding_replicas = self.adding


def allowed_election(image: Image, settings: ServerSettings, topic: TopicImage) -> ElectionKind:
    """What the topic allows when a leader is gone."""
    return ElectionKind.UNCLEAN if may_be_unclean(image, settings, topic) else ElectionKind.ONLINE


def _places(partition: PartitionImage) -> list[Uuid]:
    return list(partition.directories) or [MIGRATING_DIRECTORY] * len(partition.replicas)


def _without(replicas: Iterable[int], gone: Iterable[int]) -> list[int]:
    gone = set(gone)
    return [replica for replica in replicas if replica not in gone]
