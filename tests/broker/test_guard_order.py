"""What comes before a guard's questions, and what it leaves to the handler unasked: the order of Apache Kafka's checks.

A client that may do nothing gets the same answers as others to requests that nobody could be served.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.guard.guards import GUARDS, guarded
from ottla.broker.handlers.transaction import add_partitions
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import INTERNAL_TOPICS, NO_UUID, Uuid
from ottla.security.acl import AclOperation
from ottla.wire.api import API, ApiKey
from ottla.wire.api import consumer_group_describe as consumers
from ottla.wire.api import share_group_describe as shares
from ottla.wire.api import streams_group_describe as streams
from ottla.wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.api.delete_topics import DeleteTopicState
from ottla.wire.api.describe_topic_partitions import Cursor, TopicRequest
from ottla.wire.api.metadata import MetadataRequestTopic
from ottla.wire.api.offset_fetch import OffsetFetchRequestTopics, OffsetFetchResponseGroup
from ottla.wire.api.streams_group_heartbeat import TopicInfo
from tests.broker.guard_scene import Scene, asked, codes_of, filled

_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


# ---- kinds of groups

KINDS = {
    "group.version": ("CONSUMER_GROUP_HEARTBEAT", "CONSUMER_GROUP_DESCRIBE"),
    "streams.version": ("STREAMS_GROUP_HEARTBEAT", "STREAMS_GROUP_DESCRIBE"),
    "share.version": (
        "SHARE_GROUP_HEARTBEAT",
        "SHARE_GROUP_DESCRIBE",
        "SHARE_FETCH",
        "SHARE_ACKNOWLEDGE",
        "ALTER_SHARE_GROUP_OFFSETS",
        "DELETE_SHARE_GROUP_OFFSETS",
        "DESCRIBE_SHARE_GROUP_OFFSETS",
    ),
}


@pytest.mark.parametrize(
    ("feature", "key"),
    [(feature, ApiKey[name]) for feature, names in KINDS.items() for name in names],
    ids=lambda value: API[value].name if isinstance(value, ApiKey) else "",
)
def test_a_kind_of_groups_that_is_not_served_is_refused_before_any_question(feature: str, key: ApiKey) -> None:
    for others in set(KINDS) - {feature}:
        served = Scene(key)
        served.call.node.image.features[others] = 0
        served.response = filled(API[key].response, served.version)
        served.ask()
        assert served.passed and served.authorizer.questions
    scene = Scene(key)
    scene.call.node.image.features[feature] = 0
    with pytest.raises(KafkaError) as refused:
        scene.ask()
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert (scene.passed, scene.authorizer.questions) == ([], [])


def test_a_group_is_synced_with_its_protocol() -> None:
    for version, protocol_type, protocol, refused in (
        (4, None, None, False),
        (5, None, "p", True),
        (5, "t", None, True),
        (5, "t", "p", False),
    ):
        scene, told = asked(
            ApiKey.SYNC_GROUP,
            "READ GROUP group_id",
            version=version,
            protocol_type=protocol_type,
            protocol_name=protocol,
        )
        assert not scene.passed
        assert told is (ErrorCode.INCONSISTENT_GROUP_PROTOCOL if refused else ErrorCode.GROUP_AUTHORIZATION_FAILED)
        assert scene.authorizer.questions == ([] if refused else ["READ GROUP group_id"])


@pytest.mark.parametrize("field", ["source_topics", "repartition_source_topics"])
@pytest.mark.parametrize("name", ["__consumer_offsets", "no such"])
def test_a_topology_with_a_name_that_cannot_be_is_no_question_of_topics(field: str, name: str) -> None:
    for denied, code in (
        ((), ErrorCode.STREAMS_INVALID_TOPOLOGY),
        ((f"DESCRIBE TOPIC {name}",), ErrorCode.STREAMS_INVALID_TOPOLOGY),
        (("READ GROUP group_id",), ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ):
        scene = Scene(ApiKey.STREAMS_GROUP_HEARTBEAT, None, *denied)
        setattr(
            scene.request.topology.subtopologies[1],
            field,
            [name if field == "source_topics" else TopicInfo(name=name)],
        )
        with pytest.raises(KafkaError) as refused:
            scene.ask()
        assert refused.value.code is code
        assert (scene.passed, scene.authorizer.questions) == ([], ["READ GROUP group_id"])


# ---- what is named more than once


def _topics(key: ApiKey, *names: str) -> Any:
    scene = Scene(
        key, None, "CREATE CLUSTER", *(f"{each.name} TOPIC {name}" for each in AclOperation for name in names)
    )
    scene.request.topics = [type(scene.request.topics[0])(name=name) for name in names]
    return scene, scene.ask()


@pytest.mark.parametrize(("key", "question"), [(ApiKey.CREATE_TOPICS, "CREATE"), (ApiKey.CREATE_PARTITIONS, "ALTER")])
def test_a_topic_that_is_named_twice_is_for_the_handler_to_refuse(key: ApiKey, question: str) -> None:
    scene, told = _topics(key, "twice", "once", "twice")
    assert [each.name for each in scene.passed[0].topics] == ["twice", "twice"]
    assert [each for each in scene.authorizer.questions if "TOPIC" in each] == [f"{question} TOPIC once"]
    assert codes_of(told, "once") == {_DENIED}
    scene, _ = _topics(ApiKey.CREATE_TOPICS, "__cluster_metadata")
    assert scene.passed, "and so is the quorum's topic"
    scene, _ = _topics(ApiKey.CREATE_PARTITIONS, "__cluster_metadata")
    assert not scene.passed


@pytest.mark.parametrize("by", ["name", "id", "names of old versions"])
def test_a_topic_to_delete_that_is_named_twice_is_for_the_handler_to_refuse(by: str) -> None:
    scene = Scene(
        ApiKey.DELETE_TOPICS,
        5 if by.startswith("names") else None,
        "DELETE CLUSTER",
        *(f"{word} TOPIC {name}" for word in ("DESCRIBE", "DELETE") for name in ("there", "hidden")),
    )
    twice, once = Uuid(b"1" * 16), Uuid(b"2" * 16)
    if by == "id":
        scene.request.topics = [DeleteTopicState(name=None, topic_id=each) for each in (twice, once, twice)]
    elif by == "name":
        scene.request.topics = [DeleteTopicState(name=each, topic_id=NO_UUID) for each in ("there", "hidden", "there")]
    else:
        scene.request.topics, scene.request.topic_names = [], ["there", "hidden", "there"]
    told = scene.ask()
    (passed,) = scene.passed
    expected = [twice, twice] if by == "id" else ["there", "there"]
    assert [getattr(each, "name", each) or each.topic_id for each in passed.topics or passed.topic_names] == expected
    assert {each.error_code for each in told.responses} == {_DENIED}
    assert not [each for each in scene.authorizer.questions if each.endswith("there")]


@pytest.mark.parametrize("key", [ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.DESCRIBE_CONFIGS])
def test_a_resource_that_is_changed_twice_is_for_the_handler_to_refuse(key: ApiKey) -> None:
    scene = Scene(key, None, "ALTER_CONFIGS TOPIC r", "DESCRIBE_CONFIGS TOPIC r", "ALTER_CONFIGS GROUP r")
    made = type(scene.request.resources[0])
    scene.request.resources = [made(resource_type=kind, resource_name="r") for kind in (2, 2, 32)]
    scene.ask()
    types = [each.resource_type for each in scene.passed[0].resources] if scene.passed else []
    # A resource may be described as often as the client likes.
    assert types == ([32] if key is ApiKey.DESCRIBE_CONFIGS else [2, 2])


def test_a_group_to_delete_that_is_named_twice_is_refused_once() -> None:
    scene = Scene(ApiKey.DELETE_GROUPS, None, "DELETE GROUP g")
    scene.request.groups_names = ["g", "h", "g", "h"]
    told = scene.ask()
    assert [each.groups_names for each in scene.passed] == [["h"]]
    assert [(each.group_id, each.error_code) for each in told.results] == [("g", ErrorCode.GROUP_AUTHORIZATION_FAILED)]


# ---- transactions


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
@pytest.mark.parametrize("guarded", [True, False])
def test_no_client_writes_into_an_internal_topic_in_a_transaction(name: str, guarded: bool) -> None:
    there = SimpleNamespace(partitions=[None] * 2)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=each, partitions=[0, 1]) for each in ("there", name)],
    )
    image = SimpleNamespace(topics={"there": there, name: there}, has=lambda tp: True)
    if guarded:
        scene = Scene(ApiKey.ADD_PARTITIONS_TO_TXN, 3)
        scene.request, scene.call.node.image = request, image
        told = scene.ask()
        assert not scene.passed
        assert f"WRITE TOPIC {name}" not in scene.authorizer.questions
    else:
        call: Any = SimpleNamespace(node=SimpleNamespace(image=image), version=3, connection=None)
        told = add_partitions(call, request)
    assert {
        topic.name: [each.partition_error_code for each in topic.results_by_partition]
        for topic in told.results_by_topic_v3_and_below
    } == {"there": [ErrorCode.OPERATION_NOT_ATTEMPTED] * 2, name: [_DENIED] * 2}


def test_records_of_a_transaction_without_an_id_are_for_the_handler_to_refuse() -> None:
    scene = Scene(ApiKey.PRODUCE, 12)
    scene.request.transactional_id = None
    batch = bytearray(61)
    batch[22] = 0x10
    scene.request.topic_data[0].partition_data[0].records = bytes(batch)
    scene.ask()
    assert scene.passed == [scene.request]
    assert not [each for each in scene.authorizer.questions if "TRANSACTIONAL_ID" in each]


# ---- what is said of a group whose topics are hidden


@pytest.mark.parametrize(
    ("key", "wire", "words"),
    [
        (ApiKey.CONSUMER_GROUP_DESCRIBE, consumers, "The group has described topic(s) that"),
        (ApiKey.SHARE_GROUP_DESCRIBE, shares, "The group has described topic(s) that"),
        (ApiKey.STREAMS_GROUP_DESCRIBE, streams, "The described group uses topics that"),
    ],
    ids=["consumer", "share", "streams"],
)
@pytest.mark.parametrize("denied", [True, False])
def test_a_group_of_hidden_topics_shows_its_name_alone(key: ApiKey, wire: Any, words: str, denied: bool) -> None:
    scene = Scene(key, None, "DESCRIBE TOPIC secret" if denied else "")
    member = wire.Member(member_id="m")
    if wire is streams:
        topology = streams.Topology(epoch=1, subtopologies=[streams.Subtopology(source_topics=["secret"])])
        more: dict[str, Any] = {"topology": topology}
    else:
        member.assignment = wire.Assignment(
            topic_partitions=[wire.TopicPartitions(topic_name="secret", partitions=[0])]
        )
        more = {}
    group = wire.DescribedGroup(
        group_id="g", group_state="Stable", group_epoch=7, assignment_epoch=6, members=[member], **more
    )
    scene.response.groups = [wire.DescribedGroup(group_id="before"), group]
    scene.request.include_authorized_operations = True
    before, told = scene.ask().groups
    assert (before.group_id, before.error_code) == ("before", 0)
    if denied:
        text = f"{words} the client is not authorized to describe."
        assert told == wire.DescribedGroup(group_id="g", error_code=_DENIED, error_message=text)
    else:
        assert (told.group_state, told.group_epoch, told.authorized_operations, told.members) == (
            "Stable",
            7,
            1001,
            [member],
        )


# ---- topics by id, and APIs without a guard


def test_offsets_are_asked_for_by_the_id_of_a_topic() -> None:
    scene = Scene(ApiKey.OFFSET_FETCH, 10, "DESCRIBE TOPIC hidden")
    there, hidden, unknown = (Uuid(each * 16) for each in (b"1", b"2", b"3"))
    (group, other) = scene.request.groups
    group.topics = [
        OffsetFetchRequestTopics(topic_id=each, partition_indexes=[4, 5]) for each in (there, hidden, unknown)
    ]
    other.topics = []
    scene.response.groups = [OffsetFetchResponseGroup(group_id=each) for each in ("a", "b")]
    told, _ = scene.ask().groups
    # That an id is not known is no secret: the handler says so.
    assert [each.topic_id for each in scene.passed[0].groups[0].topics] == [there, unknown]
    assert [(each.topic_id, each.name) for each in told.topics] == [(hidden, "")]
    assert [
        (each.partition_index, each.committed_offset, each.committed_leader_epoch, each.metadata, each.error_code)
        for each in told.topics[0].partitions
    ] == [(index, -1, -1, "", _DENIED) for index in (4, 5)]


def test_an_api_without_a_guard_is_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(GUARDS, ApiKey.METADATA)
    scene = Scene(ApiKey.METADATA)
    scene.handler = guarded(scene.authorizer, scene.handler)  # type: ignore[arg-type]
    with pytest.raises(KafkaError) as refused:
        scene.ask()
    assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert not scene.passed


@pytest.mark.parametrize(
    ("key", "version", "field", "question"),
    [
        (ApiKey.PRODUCE, 13, "topic_data", "WRITE"),
        (ApiKey.OFFSET_COMMIT, 10, "topics", "READ"),
    ],
)
def test_an_unknown_id_of_a_topic_is_for_the_handler_to_refuse(
    key: ApiKey, version: int, field: str, question: str
) -> None:
    scene = Scene(key, version, f"{question} TOPIC hidden", f"{question} TOPIC ")
    if key is ApiKey.PRODUCE:
        scene.request.transactional_id = None
    first, second = getattr(scene.request, field)
    first.topic_id, second.topic_id, first.name, second.name = Uuid(b"3" * 16), Uuid(b"2" * 16), "", ""
    scene.ask()
    (passed,) = scene.passed
    assert getattr(passed, field) == [first]
    assert [each for each in scene.authorizer.questions if "TOPIC" in each] == [f"{question} TOPIC hidden"]


# ---- pages


def _page(
    names: list[str], cursor: str, *denied: str, index: int = 3
) -> tuple[Any, list[str], dict[str, int], list[str]]:
    """(the handler's cursor, its topics, the refused ones, the questions) of a page from this topic on."""
    scene = Scene(ApiKey.DESCRIBE_TOPIC_PARTITIONS, None, *(f"DESCRIBE TOPIC {name}" for name in denied))
    scene.call.node.image.topics = dict.fromkeys("dbac")
    scene.request.topics = [TopicRequest(name=name) for name in names]
    scene.request.cursor = Cursor(topic_name=cursor, partition_index=index)
    told = scene.ask()
    passed = scene.passed[0] if scene.passed else None
    place = passed and passed.cursor and (passed.cursor.topic_name, passed.cursor.partition_index)
    asked_of = [each.name for each in passed.topics] if passed else []
    questions = sorted(each.split()[-1] for each in scene.authorizer.questions)
    return place, asked_of, {each.name: each.error_code for each in told.topics}, questions


@pytest.mark.parametrize("named", [True, False])
def test_a_page_of_topics_has_no_word_of_those_before_it(named: bool) -> None:
    names = list("cbda") if named else []
    refused = {"c": _DENIED} if named else {}
    assert _page(names, "b", "a", "c") == (
        ("b", 3),
        sorted(["b", "d"], key=(names or list("dbac")).index),
        refused,
        ["b", "c", "d"],
    )
    # A topic that is not to be seen any more does not hold up the pages behind it.
    assert _page(names, "c", "c") == (None, ["d"], refused, ["c", "d"])
    # Nothing is left.
    assert _page(names, "d", "d") == (None, [], {"d": _DENIED} if named else {}, ["d"])


def test_all_topics_go_on_behind_a_topic_that_is_gone() -> None:
    assert _page([], "bb", "d") == (None, ["c"], {}, ["c", "d"])
    # Of topics that are named, that is a mistake, and the handler says so.
    assert _page(["a", "d"], "bb", "a", "d") == (("bb", 3), ["a", "d"], {}, [])
    assert _page([], "d", "b", index=0) == (("d", 0), ["d"], {}, ["d"])
    for names in ([], ["a", "b"]):
        assert _page(names, "b", "a", "b", index=-1) == (("b", -1), names, {}, [])


@pytest.mark.parametrize(("version", "refused"), [(10, True), (11, True), (12, False)])
def test_topics_by_id_are_refused_before_any_question_by_versions_without_ids(version: int, refused: bool) -> None:
    for name, topic_id in ((None, NO_UUID), ("there", Uuid(b"2" * 16))):
        scene = Scene(ApiKey.METADATA, version, "DESCRIBE TOPIC hidden", "DESCRIBE TOPIC ")
        scene.request.topics = [MetadataRequestTopic(name=name, topic_id=topic_id)]
        told = scene.ask()
        assert [each.topics for each in scene.passed] == [scene.request.topics if refused else []]
        assert bool(told.topics) is not refused
        assert bool(scene.authorizer.questions) is not refused


def test_a_topic_that_is_named_twice_is_shown_or_refused_once() -> None:
    scene = Scene(ApiKey.METADATA, 9, "DESCRIBE TOPIC hidden")
    scene.request.topics = [MetadataRequestTopic(name=each) for each in ("hidden", "there", "hidden", "there")]
    told = scene.ask()
    assert [each.name for each in scene.passed[0].topics] == ["there"]
    assert [(each.name, each.error_code) for each in told.topics] == [("hidden", _DENIED)]
    scene = Scene(ApiKey.METADATA, 12, "DESCRIBE TOPIC hidden")
    scene.request.topics = [
        MetadataRequestTopic(name=None, topic_id=Uuid(each * 16)) for each in (b"1", b"2", b"3", b"2", b"1")
    ]
    told = scene.ask()
    assert [each.topic_id for each in scene.passed[0].topics] == [b"1" * 16, b"3" * 16]
    assert [each.topic_id for each in told.topics] == [b"2" * 16]
