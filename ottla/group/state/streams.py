"""A streams group (KIP-1071): the instances of a Kafka Streams application, their topology and their tasks.

Rules:
- An active task has at most one owner; a member still owns a task that it was told to give up until it has done so.
  Within a process a task has only one role, since its state is in one directory there.
- Nothing is assigned before the topology is ready, which means that all its topics exist and fit together. The log has
  the epoch of the topology that was found ready.
- A member is immutable: every change replaces it and is in the log.

All fields are durable except `configured`, `endpoint_epoch` and `shutdown_member`. `server_assigned_group` has the part
that other kinds of groups share.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from ottla.group.state.server_assigned_group import ServerAssignedGroup
from ottla.group.topology.configuration import ConfiguredTopology
from ottla.group.topology.task import OwnedTasks, Role, RoleTask, TaskSet
from ottla.group.topology.topology import Topology
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.frozen import frozen


class StreamsState(StrEnum):
    """The state of a group; tools show its text."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class TaskState(IntEnum):
    """A member's state on the way to its target. The numbers are in the log."""

    STABLE = 1
    #: The member was told to give up tasks and still owns some of them.
    UNREVOKED_TASKS = 2
    #: The member waits for tasks that others have not given up yet.
    UNRELEASED_TASKS = 3
    #: Written by a newer version of Kafka.
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> "TaskState":
        return cls.UNKNOWN


@frozen
class StreamsMember:
    """A member: a thread of an instance of the application."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = 0
    state: TaskState = TaskState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    #: Members of one process share its state directory.
    process_id: str = ""
    #: (host, port) where the process answers interactive queries.
    endpoint: tuple[str, int] | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    assigned: OwnedTasks = field(default_factory=OwnedTasks)
    #: The tasks that it must give up and may still work on.
    revoking: OwnedTasks = field(default_factory=OwnedTasks)

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is TaskState.STABLE and self.epoch == assignment_epoch

    def held(self) -> list[RoleTask]:
        """All tasks of the member, including those that it must give up."""
        return [*self.assigned.each(), *self.revoking.each()]

    def epoch_of(self, subtopology: str, partition: int) -> int | None:
        """The epoch since which the member owns the active task, or None."""
        for owned in (self.assigned, self.revoking):
            epoch = owned.active.get(subtopology, {}).get(partition)
            if epoch is not None:
                return epoch
        return None


@dataclass(slots=True)
class StreamsGroup(ServerAssignedGroup[StreamsMember, TaskSet]):
    """A group."""

    topology: Topology | None = None
    #: The epoch of the topology if it was ready when the group epoch last rose, else -1.
    validated_topology_epoch: int = 0
    #: The settings of the last assignment.
    assignment_configs: dict[str, str] = field(default_factory=dict)
    #: Task in a role -> process id -> number of its members that have the task.
    processes: dict[RoleTask, dict[str, int]] = field(default_factory=dict)
    #: The topology checked against the topics; None until a heartbeat needs it.
    configured: ConfiguredTopology | None = None
    #: Raised when the endpoint information for members changes.
    endpoint_epoch: int = 0
    #: The member that asked to shut down the application.
    shutdown_member: str | None = None

    # -- members

    def put(self, member: StreamsMember) -> None:
        self._release(member.member_id)
        self.members[member.member_id] = member
        for task in member.held():
            holders = self.processes.setdefault(task, {})
            holders[member.process_id] = holders.get(member.process_id, 0) + 1

    def remove(self, member_id: str) -> None:
        self._release(member_id)
        del self.members[member_id]
        if not self.members:
            self.shutdown_member = None

    def _release(self, member_id: str) -> None:
        member = self.members.get(member_id)
        for task in () if member is None else member.held():
            assert member is not None
            holders = self.processes[task]
            holders[member.process_id] -= 1
            if not holders[member.process_id]:
                del holders[member.process_id]
            if not holders:
                del self.processes[task]

    # -- queries

    @property
    def state(self) -> StreamsState:
        if not self.members:
            return StreamsState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return StreamsState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return StreamsState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return StreamsState.STABLE
        return StreamsState.RECONCILING

    def target_of(self, member_id: str) -> TaskSet:
        return self.targets.get(member_id, NO_TASKS)

    def subscription(self) -> Callable[[str], bool]:
        """Whether the application reads a topic, as of now; without members it reads none."""
        sources = self.topology.sources if self.members and self.topology is not None else {}
        return sources.__contains__

    def may_take(self, role: Role, subtopology: str, partition: int, process_id: str) -> bool:
        """May a member of this process take the task?"""
        if role is Role.ACTIVE and (Role.ACTIVE, subtopology, partition) in self.processes:
            return False
        return not any(process_id in self.processes.get((any_role, subtopology, partition), ()) for any_role in Role)

    def validate(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        processes: dict[RoleTask, dict[str, int]] = {}
        for member in self.members.values():
            assert member.epoch <= self.epoch
            assert member.state is TaskState.UNREVOKED_TASKS or member.revoking.is_empty
            for task in member.held():
                holders = processes.setdefault(task, {})
                holders[member.process_id] = holders.get(member.process_id, 0) + 1
        assert processes == self.processes
        for (role, *_), holders in processes.items():
            assert role is not Role.ACTIVE or sum(holders.values()) == 1, "an active task is two members'"
        assert set(self.targets) <= set(self.members)
        assert self.assignment_epoch <= self.epoch
        targets = [
            (subtopology, partition)
            for target in self.targets.values()
            for subtopology, partitions in target.active.items()
            for partition in partitions
        ]
        assert len(targets) == len(set(targets)), "an active task has two target members"


NO_TASKS = TaskSet()


def check_epoch(member: StreamsMember, epoch: int, claimed: TaskSet | None) -> None:
    """Raise FENCED_MEMBER_EPOCH unless `epoch` is the member's, or its previous one and it claims only own tasks."""
    if epoch in (0, member.epoch):
        return
    has = member.assigned
    lost_answer = (
        epoch < member.epoch
        and epoch == member.previous_epoch
        and claimed is not None
        and _within(claimed.active, has.active)
        and _within(claimed.standby, has.standby)
        and _within(claimed.warmup, has.warmup)
    )
    if not lost_answer:
        size = "greater" if epoch > member.epoch else "smaller"
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The streams group member has a {size} member epoch ({epoch}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
        )


def _within(claimed: Mapping[str, tuple[int, ...]], has: Mapping[str, object]) -> bool:
    for subtopology, partitions in claimed.items():
        known = has.get(subtopology, ())
        assert isinstance(known, Mapping | tuple)
        if not set(partitions) <= set(known):
            return False
    return True
