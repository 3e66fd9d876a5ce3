"""Tasks of a streams application: a subtopology and one of its partitions (KIP-1071).

A member has tasks in three roles: active tasks process records, standby tasks replicate the state of an active task
elsewhere, warm-up tasks catch up before they become active. Kafka 4.3 assigns no warm-up tasks, but its records and
messages have fields for them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from enum import IntEnum
from typing import Protocol

from ottla.kernel.frozen import frozen

#: Subtopology -> partitions, ascending.
Tasks = Mapping[str, tuple[int, ...]]
#: Subtopology -> partition -> the epoch since which the member owns the task.
TaskEpochs = Mapping[str, Mapping[int, int]]


class Role(IntEnum):
    """A member's role for a task."""

    ACTIVE = 0
    STANDBY = 1
    WARMUP = 2


#: A task in a role: role, subtopology, partition.
RoleTask = tuple[Role, str, int]


class TaskIds(Protocol):
    """The tasks of one subtopology in a message or record."""

    subtopology_id: str
    partitions: list[int]


@frozen
class TaskSet:
    """A target: the tasks that a member should have."""

    active: Tasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)


@frozen
class OwnedTasks:
    """The tasks that a member has or must give up."""

    active: TaskEpochs = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)

    def as_target(self) -> TaskSet:
        """The same tasks without epochs."""
        active = {subtopology: tuple(sorted(epochs)) for subtopology, epochs in self.active.items()}
        return TaskSet(active, self.standby, self.warmup)

    def each(self) -> Iterator[RoleTask]:
        """Every task with its role."""
        yield from role_tasks(Role.ACTIVE, self.active)
        yield from role_tasks(Role.STANDBY, self.standby)
        yield from role_tasks(Role.WARMUP, self.warmup)


def role_tasks(role: Role, tasks: Mapping[str, Iterable[int]]) -> Iterator[RoleTask]:
    """Every task of a role."""
    for subtopology, partitions in tasks.items():
        for partition in partitions:
            yield role, subtopology, partition


def read_tasks(ids: Iterable[TaskIds]) -> Tasks:
    """The tasks of a message or record."""
    tasks: dict[str, set[int]] = {}
    for entry in ids:
        tasks.setdefault(entry.subtopology_id, set()).update(entry.partitions)
    return {subtopology: tuple(sorted(tasks[subtopology])) for subtopology in sorted(tasks) if tasks[subtopology]}
