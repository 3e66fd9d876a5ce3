"""Reconcile a streams member's tasks with its target (KIP-1071), waiting for other members only where necessary.

    STABLE             the member has the target of its epoch
    UNREVOKED_TASKS    it must give up tasks first; it stays in its epoch and gets nothing new
    UNRELEASED_TASKS   it is in the target's epoch and waits for tasks that others must give up

| from | to | when |
|---|---|---|
| STABLE, UNRELEASED_TASKS | UNREVOKED_TASKS | a new target takes tasks away |
| STABLE | UNRELEASED_TASKS | a new target gives it tasks that others still own |
| UNREVOKED_TASKS | UNRELEASED_TASKS | it has given them up, and others still own what it gets |
| UNREVOKED_TASKS, UNRELEASED_TASKS | STABLE | nothing is left to give up or to wait for |

Rules:
- Revoke before assign: a member that owns a task outside its target gets nothing new until it reports that it gave the
  task up.
- An active task is assigned only when it has no owner; a task in any role only when its process does not own it in any
  role, since its state has one directory there.
- A kept active task keeps its assignment epoch, and commits of that epoch stay valid.
"""

from collections.abc import Callable
from dataclasses import replace

from ottla.group.state.streams import StreamsMember, TaskState
from ottla.group.topology.task import OwnedTasks, Role, TaskEpochs, Tasks, TaskSet
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.frozen import frozen

#: (role, subtopology, partition, process id) -> is the task free for it?
_MayTake = Callable[[Role, str, int, str], bool]


@frozen
class TaskGoal:
    """The target of a member, and the facts that constrain its next step."""

    assignment_epoch: int
    target: TaskSet
    may_take: _MayTake
    #: The tasks that the member says it owns; None if the request does not say.
    claimed: TaskSet | None


def reconcile_tasks(member: StreamsMember, goal: TaskGoal) -> StreamsMember:
    """The member after its next step; the same object if there is none."""
    match member.state:
        case TaskState.STABLE:
            return member if member.epoch == goal.assignment_epoch else _advance(member, goal, member.epoch)
        case TaskState.UNREVOKED_TASKS:
            return member if _claims(member.revoking, goal) else _advance(member, goal, member.epoch + 1)
        case TaskState.UNRELEASED_TASKS:
            return _advance(member, goal, member.epoch)
        case _:
            # A newer version wrote an unknown state: the member must start over without tasks.
            claimed = goal.claimed
            if claimed is None or claimed.active or claimed.standby or claimed.warmup:
                raise KafkaError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin.",
                )
            return _advance(member, goal, goal.assignment_epoch)


def _claims(owned: OwnedTasks, goal: TaskGoal) -> bool:
    """May the member still own any of these? True if the request does not say."""
    claimed = goal.claimed
    if claimed is None:
        return True
    claimed_by_role = {Role.ACTIVE: claimed.active, Role.STANDBY: claimed.standby, Role.WARMUP: claimed.warmup}
    return any(partition in claimed_by_role[role].get(subtopology, ()) for role, subtopology, partition in owned.each())


@frozen
class _Step:
    """The changes to the tasks of one role."""

    keeps: dict[str, dict[int, int]]
    loses: dict[str, dict[int, int]]
    gains: dict[str, dict[int, int]]
    waits: bool

    def taken(self) -> dict[str, dict[int, int]]:
        """The kept and gained tasks."""
        return {
            subtopology: {**self.keeps.get(subtopology, {}), **self.gains.get(subtopology, {})}
            for subtopology in dict.fromkeys((*self.keeps, *self.gains))
        }


def _step(role: Role, member: StreamsMember, goal: TaskGoal, has: TaskEpochs, target: Tasks) -> _Step:
    keeps: dict[str, dict[int, int]] = {}
    loses: dict[str, dict[int, int]] = {}
    gains: dict[str, dict[int, int]] = {}
    waits = False
    for subtopology, epochs in has.items():
        for partition, since in epochs.items():
            into = keeps if partition in target.get(subtopology, ()) else loses
            into.setdefault(subtopology, {})[partition] = since
    for subtopology, partitions in target.items():
        for partition in partitions:
            if partition in has.get(subtopology, {}):
                continue
            if goal.may_take(role, subtopology, partition, member.process_id):
                gains.setdefault(subtopology, {})[partition] = goal.assignment_epoch
            else:
                waits = True
    return _Step(keeps, loses, gains, waits)


def _advance(member: StreamsMember, goal: TaskGoal, epoch: int) -> StreamsMember:
    """Revoke what is not in the target; if that is done, assign what is free."""
    has = member.assigned
    active = _step(Role.ACTIVE, member, goal, has.active, goal.target.active)
    standby = _step(Role.STANDBY, member, goal, _with_epochs(has.standby), goal.target.standby)
    warmup = _step(Role.WARMUP, member, goal, _with_epochs(has.warmup), goal.target.warmup)
    revoking = OwnedTasks(_sorted(active.loses), _plain(standby.loses), _plain(warmup.loses))
    if not revoking.is_empty and _claims(revoking, goal):
        return replace(
            member,
            state=TaskState.UNREVOKED_TASKS,
            epoch=epoch,
            previous_epoch=member.epoch,
            assigned=OwnedTasks(_sorted(active.keeps), _plain(standby.keeps), _plain(warmup.keeps)),
            revoking=revoking,
        )
    waits = active.waits or standby.waits or warmup.waits
    return replace(
        member,
        state=TaskState.UNRELEASED_TASKS if waits else TaskState.STABLE,
        epoch=goal.assignment_epoch,
        previous_epoch=member.epoch,
        assigned=OwnedTasks(_sorted(active.taken()), _plain(standby.taken()), _plain(warmup.taken())),
        revoking=OwnedTasks(),
    )


def _with_epochs(tasks: Tasks) -> TaskEpochs:
    """Standby and warm-up tasks with an epoch of 0: only active tasks have epochs."""
    return {subtopology: dict.fromkeys(partitions, 0) for subtopology, partitions in tasks.items()}


def _sorted(tasks: TaskEpochs) -> TaskEpochs:
    return {subtopology: dict(sorted(epochs.items())) for subtopology, epochs in sorted(tasks.items())}


def _plain(tasks: TaskEpochs) -> Tasks:
    return {subtopology: tuple(sorted(epochs)) for subtopology, epochs in sorted(tasks.items())}
