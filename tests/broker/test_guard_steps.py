"""Guards of long requests: what they name is asked about in steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.kernel.ids import Uuid
from ottla.wire.api import API, ApiKey
from ottla.wire.api.create_topics import CreatableTopic
from ottla.wire.api.delete_topics import DeleteTopicState
from ottla.wire.api.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from ottla.wire.compile import Deferred
from ottla.wire.schema import fields
from tests.broker.guard_scene import Scene, filled

_MANY, _STEP = 1000, 200

#: API, version (None: the newest), and the list of the request with very many elements.
_LONG = [
    (ApiKey.PRODUCE, 12, "topic_data"),
    (ApiKey.LIST_OFFSETS, None, "topics"),
    (ApiKey.METADATA, 9, "topics"),
    (ApiKey.DESCRIBE_TOPIC_PARTITIONS, None, "topics"),
    (ApiKey.DESCRIBE_CONFIGS, None, "resources"),
    (ApiKey.CREATE_TOPICS, None, "topics"),
    (ApiKey.FIND_COORDINATOR, None, "coordinator_keys"),
    (ApiKey.OFFSET_COMMIT, 9, "topics"),
    (ApiKey.OFFSET_FETCH, 7, "topics"),
    (ApiKey.OFFSET_DELETE, None, "topics"),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, None, "subscribed_topic_names"),
    (ApiKey.DESCRIBE_GROUPS, None, "groups"),
    (ApiKey.ADD_PARTITIONS_TO_TXN, 3, "v3_and_below_topics"),
]


def _long(key: ApiKey, version: int | None, field: str) -> Scene:
    scene = Scene(key, version, "CREATE CLUSTER")
    scene.call.is_long = True
    of = next(each for each in fields(API[key].request) if each.name == field)
    made: list[Any] = [
        f"name-{number}" if of.struct is None else filled(of.struct, scene.version, f"-{number}")
        for number in range(_MANY)
    ]
    for each in made:
        if key is ApiKey.DESCRIBE_CONFIGS:
            each.resource_type = 2
        if key is ApiKey.PRODUCE:
            each.partition_data = []
    setattr(scene.request, field, made)
    if key is ApiKey.PRODUCE:
        scene.request.transactional_id = None
    return scene


@pytest.mark.parametrize(("key", "version", "field"), _LONG, ids=[f"{each[0].name}" for each in _LONG])
def test_a_long_request_is_asked_about_in_steps(key: ApiKey, version: int | None, field: str) -> None:
    scene = _long(key, version, field)
    later = scene.ask()
    steps = 1
    before = len(scene.authorizer.questions)
    # At most two questions for each: may a topic be described, and may a missing one be created?
    assert before <= 2 * _STEP + 3 and not scene.passed
    while scene.steps:
        scene.steps.pop()()
        steps += 1
        asked = len(scene.authorizer.questions)
        assert asked - before <= 2 * _STEP
        before = asked
    assert later.resolved and len(scene.passed) == 1 and steps > _MANY // _STEP
    assert len(getattr(scene.passed[0], field)) == _MANY


def test_a_question_about_all_topics_is_short_and_is_asked_in_steps_nevertheless() -> None:
    scene = Scene(ApiKey.METADATA, 9, *(f"DESCRIBE TOPIC name-{number}" for number in range(_MANY) if number % 2))
    scene.call.node.image.topics = dict.fromkeys(f"name-{number}" for number in range(_MANY))
    scene.request.topics, scene.request.allow_auto_topic_creation = None, True
    scene.ask()
    steps = 1
    while scene.steps and not scene.passed:
        assert len(scene.authorizer.questions) == steps * _STEP
        scene.steps.pop()()
        steps += 1
    (passed,) = scene.passed
    assert [each.name for each in passed.topics] == [f"name-{number}" for number in range(0, _MANY, 2)]
    # A topic that is deleted meanwhile is not created again.
    assert not passed.allow_auto_topic_creation and steps > _MANY // _STEP


def test_offsets_of_several_groups_are_asked_about_in_steps() -> None:
    scene = Scene(ApiKey.OFFSET_FETCH, 9)
    scene.call.is_long = True
    for group in scene.request.groups:
        group.topics = [filled(type(group.topics[0]), 9, f"{group.group_id}-{number}") for number in range(500)]
    scene.response.groups = [filled(type(each), 9) for each in (API[ApiKey.OFFSET_FETCH].response().groups or [])]
    scene.ask()
    assert not scene.passed and len(scene.authorizer.questions) <= _STEP + 2
    steps = 1
    while scene.steps and not scene.passed:
        scene.steps.pop()()
        steps += 1
    assert scene.passed and steps == 5


def test_a_denial_in_a_later_step_refuses_a_subscription() -> None:
    scene = _long(ApiKey.CONSUMER_GROUP_HEARTBEAT, None, "subscribed_topic_names")
    later = scene.ask()
    scene.authorizer.denied = tuple(f"DESCRIBE TOPIC name-{number}" for number in range(_MANY))
    scene.steps.pop()()
    assert later.value.code.name == "TOPIC_AUTHORIZATION_FAILED" and not scene.passed


@pytest.mark.parametrize("denied", [(), ("DESCRIBE_CONFIGS CLUSTER",)])
def test_what_is_described_while_it_is_encoded_stays_so_behind_the_guard(denied: tuple[str, ...]) -> None:
    made = 0

    def results() -> Iterator[DescribeConfigsResult]:
        nonlocal made
        for made in range(1, 4):
            yield DescribeConfigsResult(resource_name=f"{made}")

    response = DescribeConfigsResponse(results=Deferred(3, results))
    told = Scene(ApiKey.DESCRIBE_CONFIGS, None, *denied, response=response).ask()
    assert (made, len(told.results)) == (0, 3 + len(denied))
    names = ["1", "2", "3", *["resource_name1" for _ in denied]]
    assert [each.resource_name for each in told.results] == names


def test_the_denials_of_many_topics_are_those_of_few() -> None:
    """What is amended in each is amended in those that are made while they are encoded."""
    for count in (3, _MANY):
        names = [f"name-{number}" for number in range(count)]
        scene = Scene(ApiKey.CREATE_TOPICS, None, "CREATE CLUSTER", *(f"CREATE TOPIC {name}" for name in names))
        scene.request.topics = [CreatableTopic(name=name) for name in names]
        assert [(each.name, each.configs) for each in scene.ask().topics] == [(name, []) for name in names]
        hidden = (f"DESCRIBE TOPIC {name}" for name in names)
        scene = Scene(ApiKey.DELETE_TOPICS, None, "DELETE CLUSTER", "DELETE TOPIC there", *hidden)
        by_id = DeleteTopicState(name=None, topic_id=Uuid(b"1" * 16))
        scene.request.topics = [by_id, *(DeleteTopicState(name=name) for name in names)]
        assert [each.name for each in scene.ask().responses] == ["there", *names]
