"""A share group (KIP-932): members that read the same partitions together, record by record.

Rules:
- A partition may be assigned to many members, so no member gives up anything before another may begin: a member
  takes the target of its epoch in one step.
- Only partitions whose state the share coordinator holds are assigned. What stands there, and what is just being made
  or deleted there, is in the group's own log: `initialized`, `initializing`, `deleting`.
- A member is immutable: every change makes another one and is in the log.

What it has in common with other kinds of groups is in `server_assigned_group`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ottla.group.state.consumer import Target
from ottla.group.state.server_assigned_group import ModernGroup
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.frozen import frozen
from ottla.kernel.ids import Uuid
from ottla.kernel.named import NamedTuple


class ShareState(StrEnum):
    """Its text is what tools show."""

    EMPTY = "Empty"
    STABLE = "Stable"


class NamedPartitions(NamedTuple):
    """Partitions of one topic, with the name that it had."""

    name: str
    partitions: frozenset[int]


#: By topic id.
Held = Mapping[Uuid, NamedPartitions]


@frozen
class ShareMember:
    """A member."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    #: Sorted, each once.
    topics: tuple[str, ...] = ()
    assigned: Target = field(default_factory=dict)

    def check_epoch(self, epoch: int) -> None:
        """Raise FENCED_MEMBER_EPOCH unless the epoch is this one, the one before, or 0 to join again."""
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
class ShareGroup(ModernGroup[ShareMember, Target]):
    """A group."""

    #: Partitions whose state the share coordinator was asked to begin, and has not said so yet.
    initializing: dict[Uuid, NamedPartitions] = field(default_factory=dict)
    #: Partitions whose state the share coordinator holds.
    initialized: dict[Uuid, NamedPartitions] = field(default_factory=dict)
    #: Topics whose state the share coordinator was asked to end.
    deleting: frozenset[Uuid] = frozenset()

    @property
    def state(self) -> ShareState:
        return ShareState.STABLE if self.members else ShareState.EMPTY

    @property
    def has_unassigned(self) -> bool:
        """True if a subscribed partition with state is in no member's target."""
        if not self.members:
            return False
        subscribed = subscribed_topics(self.members.values())
        assigned: dict[Uuid, set[int]] = {}
        for target in self.targets.values():
            for topic_id, partitions in target.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        return any(
            held.name in subscribed and assigned.get(topic_id, set()) != held.partitions
            for topic_id, held in self.initialized.items()
        )

    def validate(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        assert set(self.targets) <= set(self.members)
        assert self.assignment_epoch <= self.epoch
        for member in self.members.values():
            assert member.epoch <= self.epoch
        for held in (self.initializing, self.initialized):
            assert all(each.partitions for each in held.values())


def subscribed_topics(members: Iterable[ShareMember]) -> dict[str, None]:
    """Every topic that some member subscribes to."""
    return dict.fromkeys(name for member in members for name in member.topics)


def merge(held: Held, more: Held) -> dict[Uuid, NamedPartitions]:
    """All of both; of the names the later one."""
    merged = dict(held)
    for topic_id, each in more.items():
        before = merged.get(topic_id)
        merged[topic_id] = NamedPartitions(
            each.name, each.partitions if before is None else each.partitions | before.partitions
        )
    return merged


def without(held: Held, less: Mapping[Uuid, Iterable[int]]) -> dict[Uuid, NamedPartitions]:
    """What stays when these are gone."""
    left = {}
    for topic_id, each in held.items():
        partitions = each.partitions.difference(less.get(topic_id, ()))
        if partitions:
            left[topic_id] = NamedPartitions(each.name, partitions)
    return left
