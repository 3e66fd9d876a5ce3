"""The assignor `sticky` (KIP-1071) for the tasks of a streams group. Pure functions.

Rules:
- Every active task has one member. No member exceeds the even share while others have room.
- A task stays with its member while that has room, or goes to a member that has its state as a standby; other tasks go
  to the least loaded process, and there to the least loaded member. A process's load is its tasks per member.
- A task of a subtopology with state gets `standbys` standby tasks, each in another process than the active task and
  than each other; fewer if there are not enough processes.

Ties follow the order of members, so that the result is deterministic.
"""

from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush

from ottla.group.topology.configuration import ConfiguredSubtopology
from ottla.group.topology.task import Role, Tasks, TaskSet
from ottla.kernel.frozen import frozen

_Task = tuple[str, int]


@frozen
class Worker:
    """A member to assign tasks to, and its present target."""

    member_id: str
    process_id: str
    before: TaskSet


class _Process:
    """A process: its members and the tasks assigned so far."""

    def __init__(self, order: int) -> None:
        self.order = order
        self.counts: dict[str, int] = {}
        self.tasks: set[_Task] = set()

    @property
    def rank(self) -> tuple[float, int, int]:
        """The sort key, the lowest is next: tasks per member, then the tasks of the least loaded member."""
        return sum(self.counts.values()) / len(self.counts), min(self.counts.values()), self.order


class _Quota:
    """The most tasks that a member may get: an even share of the tasks that full members leave."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.each = 0
        self._share()

    def _share(self) -> None:
        self.each = -(-self._tasks // self._members) if self._members else 0

    def given(self, count: int) -> None:
        """Record that a member has `count` tasks now."""
        if count == self.each:
            self._members -= 1
            self._tasks -= count
            self._share()


def assign_sticky(
    workers: Iterable[Worker], subtopologies: Iterable[ConfiguredSubtopology], standbys: int
) -> dict[str, TaskSet]:
    """Member id -> target."""
    assignment = _Assignment(list(workers), list(subtopologies), standbys)
    assignment.give_active()
    if standbys:
        assignment.give_standby()
    return assignment.result()


class _Assignment:
    """A run of the assignor."""

    def __init__(self, workers: list[Worker], subtopologies: list[ConfiguredSubtopology], standbys: int) -> None:
        self._standbys = standbys
        self._workers = {worker.member_id: worker for worker in workers}
        self._active = [(each.subtopology_id, index) for each in subtopologies for index in range(each.tasks)]
        self._stateful = [
            (each.subtopology_id, index) for each in subtopologies if each.is_stateful for index in range(each.tasks)
        ]
        self._processes: dict[str, _Process] = {}
        self._given: dict[str, dict[Role, list[_Task]]] = {}
        self._was_active: dict[_Task, str] = {}
        self._was_standby: dict[_Task, list[str]] = {}
        for worker in workers:
            process = self._processes.setdefault(worker.process_id, _Process(len(self._processes)))
            process.counts[worker.member_id] = 0
            self._given[worker.member_id] = {Role.ACTIVE: [], Role.STANDBY: []}
            for task in _each(worker.before.active):
                self._was_active[task] = worker.member_id
            for task in _each(worker.before.standby):
                self._was_standby.setdefault(task, []).append(worker.member_id)
        self._active_quota = _Quota(len(self._active), len(workers))
        self._quota = _Quota(len(self._active) + standbys * len(self._stateful), len(workers))

    # -- active tasks

    def give_active(self) -> None:
        # By partition first, so that members over their quota give up the last partitions of every subtopology.
        unassigned = sorted(self._active, key=lambda task: (task[1], task[0]))
        unassigned = [task for task in unassigned if not self._keep(task, self._was_active.get(task))]
        unassigned = [
            task for task in unassigned if not self._keep(task, self._least_loaded(self._was_standby.get(task, ())))
        ]
        heap = [(process.rank, process) for process in self._processes.values()]
        heapify(heap)
        for task in sorted(unassigned):
            _, process = heappop(heap)
            self._give(task, _least(process.counts), Role.ACTIVE)
            heappush(heap, (process.rank, process))

    def _keep(self, task: _Task, member_id: str | None) -> bool:
        if member_id is None or self._count(member_id) >= self._active_quota.each:
            return False
        self._give(task, member_id, Role.ACTIVE)
        return True

    # -- standby tasks

    def give_standby(self) -> None:
        unassigned: list[tuple[_Task, int]] = []
        for task in sorted(self._stateful, key=lambda task: (task[1], task[0]), reverse=True):
            missing = self._standbys
            while missing and self._keep_standby(task):
                missing -= 1
            if missing:
                unassigned.append((task, missing))
        for task, missing in sorted(unassigned, reverse=True):
            for _ in range(missing):
                free = [process for process in self._processes.values() if task not in process.tasks]
                if not free:
                    break
                process = min(free, key=lambda process_candidate: process_candidate.rank)
                self._give(task, _least(process.counts), Role.STANDBY)

    def _keep_standby(self, task: _Task) -> bool:
        """Prefer the member where the task was active, whose state is complete, then earlier standbys."""
        was_active = self._was_active.get(task)
        here_before = [] if was_active is None else [was_active]
        for candidates in (here_before, self._was_standby.get(task, [])):
            free = [candidate for candidate in candidates if task not in self._process_of(candidate).tasks]
            member_id = self._least_loaded(free)
            if member_id is not None and self._count(member_id) < self._quota.each:
                self._give(task, member_id, Role.STANDBY)
                return True
        return False

    # -- both

    def _process_of(self, member_id: str) -> _Process:
        return self._processes[self._workers[member_id].process_id]

    def _count(self, member_id: str) -> int:
        return self._process_of(member_id).counts[member_id]

    def _least_loaded(self, members: Iterable[str]) -> str | None:
        return min(
            members, key=lambda member_id: (self._process_of(member_id).rank[0], self._count(member_id)), default=None
        )

    def _give(self, task: _Task, member_id: str, role: Role) -> None:
        process = self._process_of(member_id)
        process.tasks.add(task)
        process.counts[member_id] += 1
        self._given[member_id][role].append(task)
        if role is Role.ACTIVE:
            self._active_quota.given(process.counts[member_id])
        self._quota.given(process.counts[member_id])

    def result(self) -> dict[str, TaskSet]:
        return {
            member_id: TaskSet(_tasks(given[Role.ACTIVE]), _tasks(given[Role.STANDBY]))
            for member_id, given in self._given.items()
        }


def _least(counts: Mapping[str, int]) -> str:
    key: Callable[[str], int] = counts.__getitem__
    return min(counts, key=key)


def _each(tasks: Tasks) -> Iterable[_Task]:
    return ((subtopology, partition) for subtopology, partitions in tasks.items() for partition in partitions)


def _tasks(given: Iterable[_Task]) -> Tasks:
    tasks: dict[str, list[int]] = {}
    for subtopology, partition in sorted(given):
        tasks.setdefault(subtopology, []).append(partition)
    return {subtopology: tuple(partitions) for subtopology, partitions in tasks.items()}
