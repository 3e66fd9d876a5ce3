"""The server-side assignors: Apache's answers to the same questions, and what must hold for any."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.group.consumer.assignor import ASSIGNORS, Subscriber, _Balance
from ottla.group.state.consumer import Target
from ottla.kernel.ids import Uuid, parse_uuid
from tests.interop.toolchain import classpath

GOLDEN = Path(__file__).parents[1] / "golden" / "group" / "assignments.jsonl"


def target(partitions: dict[str, list[int]]) -> Target:
    return {parse_uuid(topic): tuple(indexes) for topic, indexes in partitions.items() if indexes}


def cases() -> list[dict[str, Any]]:
    return [json.loads(line) for line in GOLDEN.read_text().splitlines()]


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_apaches_assignors_give_the_same_answers(assignor: str) -> None:
    asked = [case for case in cases() if case["assignor"] == assignor]
    assert len(asked) >= 60
    for case in asked:
        members = {
            member_id: Subscriber(
                tuple(map(parse_uuid, member["topics"])), target(member["before"]), member["instance"]
            )
            for member_id, member in case["members"].items()
        }
        counts = {parse_uuid(topic): count for topic, count in case["counts"].items()}
        expected = {member_id: target(member["after"]) for member_id, member in case["members"].items()}
        assert ASSIGNORS[assignor](members, counts) == expected


@pytest.mark.interop
def test_the_golden_answers_are_apaches() -> None:
    source = str(Path(__file__).parent / "Assignments.java")
    command = ["java", "-cp", classpath(), source]
    answered = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert answered.stdout == GOLDEN.read_text()


def topic(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, Subscriber], dict[Uuid, int]]:
    counts = {topic(number): draw(st.integers(1, 9)) for number in range(1, draw(st.integers(2, 5)))}
    members = {}
    free = {topic_id: list(range(count)) for topic_id, count in counts.items()}
    for number in range(draw(st.integers(1, 6))):
        before: dict[Uuid, tuple[int, ...]] = {}
        for topic_id, partitions in free.items():
            taken = draw(st.integers(0, len(partitions)))
            if taken:
                before[topic_id] = tuple(partitions[:taken])
                del partitions[:taken]
        topics = draw(st.lists(st.sampled_from(sorted(counts)), unique=True))
        instance_id = draw(st.sampled_from([None, f"i{number}"]))
        members[f"m{number}"] = Subscriber(tuple(topics), before, instance_id)
    return members, counts


@settings(max_examples=300, deadline=None)
@given(groups(), st.sampled_from(sorted(ASSIGNORS)))
def test_every_subscribed_partition_is_one_subscribers(group: Any, assignor: str) -> None:
    members, counts = group
    assigned = ASSIGNORS[assignor](members, counts)
    given_out = []
    for member_id, partitions in assigned.items():
        assert set(partitions) <= set(members[member_id].topics)
        assert all(indexes and list(indexes) == sorted(set(indexes)) for indexes in partitions.values())
        given_out += [(topic_id, index) for topic_id, indexes in partitions.items() for index in indexes]
    subscribed = {topic_id for member in members.values() for topic_id in member.topics}
    expected = [(topic_id, index) for topic_id in subscribed for index in range(counts[topic_id])]
    assert sorted(given_out) == sorted(expected)


@settings(max_examples=300, deadline=None)
@given(groups())
def test_uniform_is_even_where_all_subscribe_to_the_same_and_stable_when_nothing_changes(group: Any) -> None:
    members, counts = group
    alike = {name: Subscriber(tuple(sorted(counts)), member.target) for name, member in members.items()}
    assigned = ASSIGNORS["uniform"](alike, counts)
    sizes = [sum(map(len, partitions.values())) for partitions in assigned.values()]
    assert max(sizes) - min(sizes) <= 1
    again = {name: Subscriber(member.topics, assigned[name]) for name, member in alike.items()}
    assert ASSIGNORS["uniform"](again, counts) == assigned


@settings(max_examples=300, deadline=None)
@given(groups())
def test_range_gives_equal_runs_of_equal_topics_whoever_comes_first(group: Any) -> None:
    members, counts = group
    pair = dict.fromkeys(list(counts)[:2] or [topic(1)], 7)
    same = {name: Subscriber(tuple(pair), {}, member.instance_id) for name, member in members.items()}
    assigned = ASSIGNORS["range"](same, pair)
    for partitions in assigned.values():
        assert len(set(partitions.values())) <= 1
        assert all(indexes == tuple(range(indexes[0], indexes[-1] + 1)) for indexes in partitions.values())
    assert ASSIGNORS["range"](dict(reversed(same.items())), pair) == assigned


def test_static_members_keep_their_range_under_another_member_id() -> None:
    counts = {topic(1): 5}
    before = {name: Subscriber((topic(1),), {}, instance) for name, instance in (("z", "i1"), ("a", "i2"), ("c", None))}
    after = {name: Subscriber((topic(1),), {}, instance) for name, instance in (("b", "i1"), ("y", "i2"), ("c", None))}
    first, second = ASSIGNORS["range"](before, counts), ASSIGNORS["range"](after, counts)
    assert (first["z"], first["a"], first["c"]) == (second["b"], second["y"], second["c"])


def test_the_range_assignor_serves_static_members_first_by_their_names() -> None:
    topic = Uuid(b"t" * 16)
    members = {
        "a": Subscriber([topic]),
        "b": Subscriber([topic], instance_id="z"),
        "c": Subscriber([topic], instance_id="y"),
    }
    found = ASSIGNORS["range"](members, {topic: 5})
    assert found == {"c": {topic: (0, 1)}, "b": {topic: (2, 3)}, "a": {topic: (4,)}}


@pytest.mark.parametrize("count", [3, 4])
def test_uniform_keeps_no_partition_that_a_topic_made_again_has_no_more(count: int) -> None:
    one = topic(1)
    members = {"a": Subscriber((one,), {one: (2, 3, 4, 5)}), "b": Subscriber((one,), {one: (0, 1)})}
    found = ASSIGNORS["uniform"](members, {one: count})
    assert sorted(each for target in found.values() for each in target[one]) == list(range(count))
    assert set(found["b"][one]) == {0, 1} and 2 in found["a"][one]


def test_topics_of_one_weight_go_in_the_order_of_javas_ids() -> None:
    """Two signed numbers, the high half first."""
    halves = [b"\xff" * 8, b"\x00" * 8, b"\x00" * 7 + b"\x01", b"\x01" + b"\x00" * 7]
    in_order = [Uuid(high + low) for high in halves for low in halves]
    balance = _Balance({"m": Subscriber(tuple(in_order), {}, None)}, dict.fromkeys(in_order, 1))
    assert sorted(set(in_order), key=balance._urgency) == in_order
