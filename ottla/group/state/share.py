"""A share group (KIP-932): members that read the same partitions cooperatively, record by record.

Rules:
- A partition may be assigned to several members, so no member waits for a revocation: it adopts its target in one step.
- Only partitions whose state the share coordinator has are assigned. The group's log has the states that exist, are
  being created, and are being deleted: `initialized`, `initializing`, `deleting`.
- A member is immutable: every change replaces it and is in the log.

`server_assigned_group` has the part that other kinds of groups share.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ottla.group.state.consumer import Target
from ottla.group.state.server_assigned_group import ServerAssignedGroup
from ottla.group.topic import TopicView, names_of
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.frozen import frozen
from ottla.kernel.ids import Uuid
from ottla.kernel.named import NamedTuple


class ShareState(StrEnum):
    """The state of a group; tools show its text."""

    EMPTY = "Empty"
    STABLE = "Stable"


class NamedPartitions(NamedTuple):
    """Partitions of one topic, with the topic's name at that time."""

    name: str
    partitions: frozenset[int]


#: By topic id.
PartitionsByTopic = Mapping[Uuid, NamedPartitions]


@frozen
class ShareMember:
    """A member."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    #: Sorted and distinct.
    topics: tuple[str, ...] = ()
    assigned: Target = field(default_factory=dict)

    def check_epoch(self, epoch: int) -> None:
        """Raise FENCED_MEMBER_EPOCH unless `epoch` is the present one, the previous one, or 0 to rejoin."""
        if epoch in (0, self.epoch):
            return
        if epoch > self.epoch:
            text = f"has a greater member epoch ({epoch}) than the one known by the group coordinator ({self.epoch})"
        elif epoch == self.previous_epoch:
            return
        else:
            text = (
                f"has a smaller member epoch ({epoch}) than the one known by the group coordinator ({self.epoch}), and "
                f"it does not match the previous member epoch ({self.previous_epoch})"
            )
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member {text}. The member must abandon all its partitions and rejoin.",
        )


@dataclass(slots=True)
class ShareGroup(ServerAssignedGroup[ShareMember, Target]):
    """A group."""

    #: The partitions whose state the share coordinator was asked to create and has not confirmed.
    initializing: dict[Uuid, NamedPartitions] = field(default_factory=dict)
    #: The partitions whose state the share coordinator has.
    initialized: dict[Uuid, NamedPartitions] = field(default_factory=dict)
    #: The topics whose state the share coordinator was asked to delete.
    deleting: frozenset[Uuid] = frozenset()

    @property
    def state(self) -> ShareState:
        return ShareState.STABLE if self.members else ShareState.EMPTY

    def has_unassigned(self, topics: TopicView) -> bool:
        """Is a subscribed partition with state in no member's target?

        A topic that was deleted while the coordinator moved may still be in `initialized`, and is never assigned.
        """
        if not self.members:
            return False
        subscribed = names_of(self.members.values())
        assigned: dict[Uuid, set[int]] = {}
        for target in self.targets.values():
            for topic_id, partitions in target.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        return any(
            held.name in subscribed and assigned.get(topic_id, set()) != held.partitions
            for topic_id, held in self.initialized.items()
            if topics.topic_name(topic_id) is not None
        )

    def validate(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        assert set(self.targets) <= set(self.members)
        assert self.assignment_epoch <= self.epoch
        for member in self.members.values():
            assert member.epoch <= self.epoch
        for held in (self.initializing, self.initialized):
            assert all(named.partitions for named in held.values())


def merge(held: PartitionsByTopic, more: PartitionsByTopic) -> dict[Uuid, NamedPartitions]:
    """The union of both; names come from `more`."""
    merged = dict(held)
    for topic_id, named in more.items():
        before = merged.get(topic_id)
        merged[topic_id] = NamedPartitions(
            named.name, named.partitions if before is None else named.partitions | before.partitions
        )
    return merged


def without(held: PartitionsByTopic, less: Mapping[Uuid, Iterable[int]]) -> dict[Uuid, NamedPartitions]:
    """The partitions of `held` that are not in `less`."""
    remaining = {}
    for topic_id, named in held.items():
        partitions = named.partitions.difference(less.get(topic_id, ()))
        if partitions:
            remaining[topic_id] = NamedPartitions(named.name, partitions)
    return remaining
