"""The task assignor of streams groups: as good as Apache's in everything that counts, and what must hold for any."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.group.streams.assignor import Worker, assign_sticky
from ottla.group.topology.configuration import ConfiguredSubtopology
from ottla.group.topology.task import Tasks, TaskSet
from ottla.group.topology.topology import InternalTopic, Subtopology
from tests.interop.toolchain import classpath

GOLDEN = Path(__file__).parents[1] / "golden" / "group" / "streams-assignments.jsonl"

_Task = tuple[str, int]


def part(name: str, tasks: int, stateful: bool) -> ConfiguredSubtopology:
    changelogs = (InternalTopic("c", tasks, 0, ()),) if stateful else ()
    return ConfiguredSubtopology(name, tasks, Subtopology(name, ("t",), (), (), (), (), ()), (), changelogs)


def flat(tasks: Tasks) -> set[_Task]:
    return {(name, index) for name, indexes in tasks.items() for index in indexes}


def task_set(active: Mapping[str, list[int]], standby: Mapping[str, list[int]]) -> TaskSet:
    return TaskSet(
        {name: tuple(each) for name, each in active.items()}, {name: tuple(each) for name, each in standby.items()}
    )


def check(workers: list[Worker], parts: list[ConfiguredSubtopology], standbys: int, given_out: Any) -> None:
    """What must hold for any assignment."""
    processes = {worker.member_id: worker.process_id for worker in workers}
    every = [(each.subtopology_id, index) for each in parts for index in range(each.tasks)]
    stateful = [task for task in every if next(each for each in parts if each.subtopology_id == task[0]).is_stateful]
    active = [task for target in given_out.values() for task in flat(target.active)]
    assert sorted(active) == sorted(every)
    held = [
        (processes[member_id], task)
        for member_id, target in given_out.items()
        for task in (*flat(target.active), *flat(target.standby))
    ]
    assert len(held) == len(set(held)), "a process has a task twice"
    copies = min(standbys, len(set(processes.values())) - 1)
    followed = [task for target in given_out.values() for task in flat(target.standby)]
    assert sorted(followed) == sorted(stateful * copies)


def stays(workers: list[Worker], given_out: Mapping[str, TaskSet]) -> int:
    """How many active tasks stay where they were."""
    return sum(len(flat(worker.before.active) & flat(given_out[worker.member_id].active)) for worker in workers)


def test_the_assignor_is_as_even_and_as_sticky_as_apaches() -> None:
    cases = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
    assert len(cases) == 200
    for case in cases:
        parts = [part(name, *known) for name, known in case["topology"].items()]
        members = case["members"]
        workers = [Worker(name, each["process"], task_set(*each["before"])) for name, each in members.items()]
        theirs = {name: task_set(*each["after"]) for name, each in members.items()}
        ours = assign_sticky(workers, parts, case["standbys"])
        check(workers, parts, case["standbys"], ours)
        assert most(ours) <= most(theirs) + 1
        if not case["standbys"]:
            assert spread(ours) <= spread(theirs)
        # Where more tasks stay there, somebody has more than his share.
        assert stays(workers, ours) >= stays(workers, theirs) or spread(ours) < spread(theirs)


def most(given_out: Mapping[str, TaskSet]) -> int:
    return max(len(flat(target.active)) + len(flat(target.standby)) for target in given_out.values())


def spread(given_out: Mapping[str, TaskSet]) -> int:
    """By how much the active tasks of members differ in number."""
    sizes = [len(flat(target.active)) for target in given_out.values()]
    return max(sizes) - min(sizes)


@pytest.mark.interop
def test_the_golden_answers_are_those_of_apaches_task_assignor() -> None:
    command = ["java", "-cp", classpath(), str(Path(__file__).parent / "StreamsAssignments.java")]
    answered = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert answered.stdout == GOLDEN.read_text()


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[Worker], list[ConfiguredSubtopology], int]:
    parts = [
        part(str(number), draw(st.integers(1, 6)), draw(st.booleans())) for number in range(draw(st.integers(1, 3)))
    ]
    free = [(each.subtopology_id, index) for each in parts for index in range(each.tasks)]
    workers = []
    for number in range(draw(st.integers(1, 5))):
        active = draw(st.lists(st.sampled_from(free), unique=True, max_size=6)) if free else []
        free = [task for task in free if task not in active]
        standby = draw(st.lists(st.tuples(st.sampled_from("012"), st.integers(0, 5)), unique=True, max_size=4))
        before = task_set(
            *({name: [index for each, index in tasks if each == name] for name in "012"} for tasks in (active, standby))
        )
        workers.append(Worker(f"m{number}", draw(st.sampled_from("pqr")), before))
    return workers, parts, draw(st.integers(0, 2))


@settings(max_examples=300, deadline=None)
@given(groups())
def test_every_task_has_one_member_and_standbys_in_other_processes(group: Any) -> None:
    workers, parts, standbys = group
    given_out = assign_sticky(workers, parts, standbys)
    check(workers, parts, standbys, given_out)
    again = [Worker(each.member_id, each.process_id, given_out[each.member_id]) for each in workers]
    if not standbys and len({each.process_id for each in workers}) == len(workers):
        assert spread(given_out) <= 1
        assert assign_sticky(again, parts, standbys) == given_out, "nothing has changed, and nothing moves"
