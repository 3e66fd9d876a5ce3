"""Guards whose questions have an alternative or two levels, and what an answer hides."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.guard.authorizer import CODES
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.security.acl import AclResource
from ottla.wire.api import ApiKey
from ottla.wire.api.fetch import ReplicaState
from tests.broker.guard_scene import Scene, asked, codes_of


def test_nodes_ask_for_every_epoch_and_clients_for_those_of_topics_that_they_may_describe() -> None:
    key = ApiKey.OFFSET_FOR_LEADER_EPOCH
    scene, _ = asked(key)
    assert scene.authorizer.questions == ["CLUSTER_ACTION CLUSTER"]
    scene, told = asked(key, "CLUSTER_ACTION CLUSTER", "DESCRIBE TOPIC topic1")
    assert scene.authorizer.questions[1:] == ["DESCRIBE TOPIC topic0", "DESCRIBE TOPIC topic1"]
    assert [each.topic for each in scene.passed[0].topics] == ["topic0"]
    assert codes_of(told, "topic1") == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


@pytest.mark.parametrize("key", [ApiKey.FETCH])
def test_only_nodes_fetch_as_replicas(key: ApiKey) -> None:
    for version, field in ((12, "replica_id"), (17, "replica_state")):
        for replica_id, code in (
            (-1, None),
            (0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            (7, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ):
            scene = Scene(key, version, "CLUSTER_ACTION CLUSTER")
            scene.request.replica_id, scene.request.replica_state = -1, ReplicaState()
            if field == "replica_id":
                scene.request.replica_id = replica_id
            else:
                scene.request.replica_state.replica_id = replica_id
            if code is None:
                scene.ask()
                assert scene.authorizer.questions == [] and scene.passed
            else:
                with pytest.raises(KafkaError) as caught:
                    scene.ask()
                assert caught.value.code is code and not scene.passed
    scene = Scene(key, 17, "CLUSTER_ACTION CLUSTER")
    scene.request.replica_state.replica_id = -1
    scene.call.connection.listener_name = "CONTROLLER"
    with pytest.raises(KafkaError):
        scene.ask()


def test_what_is_produced_in_a_transaction_needs_its_id() -> None:
    question = "WRITE TRANSACTIONAL_ID transactional_id"
    for attributes, asks in ((0x10, True), (0x00, False), (0x2F, False)):
        scene = Scene(ApiKey.PRODUCE, 12, question)
        batch = bytearray(61)
        batch[22] = attributes
        scene.request.topic_data[1].partition_data[1].records = bytes(batch)
        if asks:
            with pytest.raises(KafkaError) as caught:
                scene.ask()
            assert caught.value.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED and not scene.passed
        else:
            scene.ask()
            assert question not in scene.authorizer.questions
    # Too short for a batch: the handler says so.
    scene = Scene(ApiKey.PRODUCE, 12, question)
    scene.request.topic_data[0].partition_data[0].records = b"\xff" * 60
    scene.ask()


def test_topics_that_are_asked_for_by_id_are_asked_about_by_name() -> None:
    for key, version, field in ((ApiKey.PRODUCE, 13, "topic_data"), (ApiKey.OFFSET_COMMIT, 10, "topics")):
        scene = Scene(key, version, "WRITE TOPIC hidden", "READ TOPIC hidden")
        if key == ApiKey.PRODUCE:
            scene.request.transactional_id = None
        first, second = getattr(scene.request, field)
        first.topic_id, second.topic_id = b"1" * 16, b"2" * 16
        first.name = second.name = ""
        scene.ask()
        (passed,) = scene.passed
        assert [each.topic_id for each in getattr(passed, field)] == [b"1" * 16]
        assert scene.authorizer.questions[-2:] in (
            ["WRITE TOPIC there", "WRITE TOPIC hidden"],
            ["READ TOPIC there", "READ TOPIC hidden"],
        )


def test_a_topic_is_made_by_those_who_may_create_it_or_any() -> None:
    key = ApiKey.CREATE_TOPICS
    scene, _ = asked(key)
    assert scene.authorizer.questions == ["CREATE CLUSTER"]
    scene, told = asked(key, "CREATE CLUSTER", "CREATE TOPIC name0")
    assert [each.name for each in scene.passed[0].topics] == ["name1"]
    assert codes_of(told, "name0") == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


@pytest.mark.parametrize("may", [True, False])
@pytest.mark.parametrize("later", [True, False])
def test_the_settings_of_a_new_topic_are_shown_to_those_who_may_see_them(may: bool, later: bool) -> None:
    from ottla.wire.api.create_topics import CreatableTopicConfigs, CreatableTopicResult, CreateTopicsResponse

    def result(name: str, code: int) -> CreatableTopicResult:
        return CreatableTopicResult(
            name=name,
            error_code=code,
            num_partitions=3,
            replication_factor=2,
            configs=[CreatableTopicConfigs(name="c")],
        )

    response = CreateTopicsResponse(topics=[result("name0", 0), result("name1", 36)])
    denied = () if may else ("DESCRIBE_CONFIGS TOPIC name0", "DESCRIBE_CONFIGS TOPIC name1")
    scene = Scene(ApiKey.CREATE_TOPICS, None, *denied, response=response, later=later)
    told = scene.ask()
    if later:
        assert scene.later is not None
        scene.later.resolve(response)
        told = told.value
    made, failed = told.topics
    assert (made.num_partitions, made.replication_factor, len(made.configs)) == ((3, 2, 1) if may else (-1, -1, 0))
    assert made.topic_config_error_code == (0 if may else ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert (failed.num_partitions, failed.topic_config_error_code) == (3, 0)


def test_a_topic_is_deleted_by_those_who_may_and_hidden_from_those_who_may_not_see_it() -> None:
    from ottla.wire.api.delete_topics import DeleteTopicState

    def deleted(*denied: str, cluster: bool = False) -> tuple[list[str], list[tuple[str | None, int]], list[str]]:
        scene = Scene(ApiKey.DELETE_TOPICS, None, *denied, *([] if cluster else ["DELETE CLUSTER"]))
        scene.request.topics = [
            DeleteTopicState(name="there"),
            DeleteTopicState(name="absent"),
            DeleteTopicState(name=None, topic_id=Uuid(b"2" * 16)),
            DeleteTopicState(name=None, topic_id=Uuid(b"3" * 16)),
        ]
        scene.call.node.image.topics["hidden"] = None
        told = scene.ask()
        passed = (
            [each.name or bytes(each.topic_id[:1]).decode() for each in scene.passed[0].topics] if scene.passed else []
        )
        return passed, [(each.name, each.error_code) for each in told.responses], scene.authorizer.questions

    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert deleted(cluster=True) == (["there", "absent", "2", "3"], [], ["DELETE CLUSTER"])
    # A client that may describe a topic may know that it is not there; an id that is not known the handler refuses.
    assert deleted("DELETE TOPIC absent")[0] == ["there", "absent", "2", "3"]
    assert deleted("DELETE TOPIC there")[:2] == (["absent", "2", "3"], [("there", code)])
    assert deleted("DESCRIBE TOPIC absent")[:2] == (["there", "2", "3"], [("absent", code)])
    # What was named by its id is named by its name only to those who may see it.
    assert deleted("DELETE TOPIC hidden")[:2] == (["there", "absent", "3"], [("hidden", code)])
    assert deleted("DESCRIBE TOPIC hidden")[:2] == (["there", "absent", "3"], [(None, code)])


def test_where_no_topic_may_be_deleted_every_client_is_told_so() -> None:
    scene = Scene(ApiKey.DELETE_TOPICS, None, "DELETE CLUSTER", "DESCRIBE TOPIC name0", "DELETE TOPIC name1")
    scene.call.node.settings.delete_topic_enable = False
    assert scene.ask() is scene.response and scene.passed == [scene.request]


@pytest.mark.parametrize("key", [ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS])
@pytest.mark.parametrize(
    ("kind", "name"), [(2, "TOPIC n0"), (4, "CLUSTER"), (8, "CLUSTER"), (16, "CLUSTER"), (32, "GROUP n0"), (3, None)]
)
def test_settings_are_asked_for_by_their_kind(key: ApiKey, kind: int, name: str | None) -> None:
    word = "DESCRIBE_CONFIGS" if key == ApiKey.DESCRIBE_CONFIGS else "ALTER_CONFIGS"
    if kind == 8 and key == ApiKey.ALTER_CONFIGS:
        name = None  # Levels are not set that way: the handler refuses it.

    def scene(*denied: str) -> Scene:
        made = Scene(key, None, *denied)
        del made.request.resources[1:]
        made.request.resources[0].resource_type, made.request.resources[0].resource_name = kind, "n0"
        return made

    free = scene()
    free.ask()
    assert free.authorizer.questions == ([] if name is None else [f"{word} {name}"]) and free.passed
    if name is not None:
        refused = scene(f"{word} {name}")
        told = refused.ask()
        assert not refused.passed
        assert codes_of(told, "n0") == {CODES[AclResource[name.split()[0]]]}


@pytest.mark.parametrize("key", [ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS])
def test_settings_of_several_kinds_have_their_own_codes(key: ApiKey) -> None:
    word = "DESCRIBE_CONFIGS" if key == ApiKey.DESCRIBE_CONFIGS else "ALTER_CONFIGS"
    scene, told = asked(key, f"{word} TOPIC resource_name0")
    assert [each.resource_name for each in scene.passed[0].resources] == ["resource_name1"]
    assert codes_of(told, "resource_name0") == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    scene, told = asked(key, f"{word} TOPIC resource_name0", f"{word} CLUSTER")
    assert scene.passed == []
    assert codes_of(told, "resource_name0") == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert codes_of(told, "resource_name1") == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}


@pytest.mark.parametrize("key", [ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_HEARTBEAT])
def test_a_member_may_subscribe_to_what_it_may_describe(key: ApiKey) -> None:
    topics = [f"DESCRIBE TOPIC subscribed_topic_names{index}" for index in range(2)]
    scene, _ = asked(key)
    assert sorted(scene.authorizer.questions) == sorted(["READ GROUP group_id", *topics])
    for question in topics:
        scene, told = asked(key, question)
        assert (scene.passed, told) == ([], ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    scene, told = asked(key, "READ GROUP group_id")
    assert (scene.passed, told) == ([], ErrorCode.GROUP_AUTHORIZATION_FAILED)
    scene, _ = asked(key, *topics, subscribed_topic_names=None)
    assert scene.passed


def test_a_streams_member_needs_its_topics() -> None:
    key = ApiKey.STREAMS_GROUP_HEARTBEAT
    scene, _ = asked(key)
    named = {
        f"{field}{suffix}"
        for field in ("source_topics", "repartition_sink_topics", "name")
        for suffix in ("000", "001", "010", "011")
    }
    everything = {f"DESCRIBE TOPIC {each}" for each in named}
    assert set(scene.authorizer.questions) == everything | {"READ GROUP group_id"}
    for question in sorted(everything):
        scene, told = asked(key, question)
        assert (scene.passed, told) == ([], ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    scene, told = asked(key, "READ GROUP group_id", *everything)
    assert (scene.passed, told) == ([], ErrorCode.GROUP_AUTHORIZATION_FAILED)
    scene, _ = asked(key, *everything, topology=None)
    assert scene.passed


def test_markers_are_written_by_nodes_and_those_who_may_alter_the_cluster() -> None:
    key = ApiKey.WRITE_TXN_MARKERS
    assert asked(key)[0].authorizer.questions == ["ALTER CLUSTER"]
    scene, _ = asked(key, "ALTER CLUSTER")
    assert scene.authorizer.questions == ["ALTER CLUSTER", "CLUSTER_ACTION CLUSTER"] and scene.passed
    scene, told = asked(key, "ALTER CLUSTER", "CLUSTER_ACTION CLUSTER")
    assert (scene.passed, told) == ([], ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def test_a_producer_s_id_is_for_those_who_may_write_somewhere() -> None:
    key = ApiKey.INIT_PRODUCER_ID
    two = ("IDEMPOTENT_WRITE CLUSTER", "WRITE TOPIC any")
    for denied in ((), two[:1], two[1:]):
        scene, _ = asked(key, *denied, transactional_id=None)
        assert scene.passed
    scene, told = asked(key, *two, transactional_id=None)
    assert (scene.passed, told) == ([], ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    question = "TWO_PHASE_COMMIT TRANSACTIONAL_ID transactional_id"
    assert asked(key, question)[0].passed
    scene, told = asked(key, question, enable2_pc=True)
    assert (scene.passed, told) == ([], ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def test_no_partition_joins_a_transaction_beside_a_topic_that_may_not_be_written() -> None:
    key = ApiKey.ADD_PARTITIONS_TO_TXN
    scene, _ = asked(key, version=3)
    assert scene.authorizer.questions == [
        "WRITE TRANSACTIONAL_ID v3_and_below_transactional_id",
        "WRITE TOPIC name0",
        "WRITE TOPIC name1",
    ]
    scene, told = asked(key, "WRITE TRANSACTIONAL_ID v3_and_below_transactional_id", version=3)
    assert (scene.passed, told) == ([], ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    scene = Scene(key, 3, "WRITE TOPIC name0")
    scene.request.v3_and_below_topics[1].partitions = [0, 2, 3]
    scene.call.node.image.topics["name1"] = SimpleNamespace(partitions=[None] * 3)
    told = scene.ask()
    assert not scene.passed
    assert [
        (
            topic.name,
            [(each.partition_index, ErrorCode(each.partition_error_code).name) for each in topic.results_by_partition],
        )
        for topic in told.results_by_topic_v3_and_below
    ] == [
        ("name0", [(0, "TOPIC_AUTHORIZATION_FAILED"), (1, "TOPIC_AUTHORIZATION_FAILED")]),
        ("name1", [(0, "OPERATION_NOT_ATTEMPTED"), (2, "OPERATION_NOT_ATTEMPTED"), (3, "UNKNOWN_TOPIC_OR_PARTITION")]),
    ]


@pytest.mark.parametrize(
    ("key_type", "version", "question"),
    [
        (0, 3, "DESCRIBE GROUP key"),
        (1, 3, "DESCRIBE TRANSACTIONAL_ID key"),
        # The handler refuses kinds that the version does not have.
        (2, 3, None),
        (2, 5, None),
        (2, 6, "CLUSTER_ACTION CLUSTER"),
        (3, 3, None),
        (3, 6, None),
    ],
)
def test_a_coordinator_is_found_by_its_kind(key_type: int, version: int, question: str | None) -> None:
    scene, _ = asked(ApiKey.FIND_COORDINATOR, version=version, key_type=key_type)
    assert scene.authorizer.questions == ([] if question is None else [question]) and scene.passed
    if question is not None:
        scene, told = asked(ApiKey.FIND_COORDINATOR, question, version=version, key_type=key_type)
        assert (scene.passed, told) == ([], CODES[AclResource[question.split()[1]]])


# ---- what an answer hides


def test_topics_that_may_not_be_described_are_left_out_of_all_topics() -> None:
    from ottla.wire.api.metadata import MetadataResponse, MetadataResponseTopic

    for version, topics in ((0, []), (9, None)):
        response = MetadataResponse(topics=[MetadataResponseTopic(name=each) for each in "ab"])
        scene = Scene(ApiKey.METADATA, version, "DESCRIBE TOPIC hidden", response=response)
        scene.call.node.image.topics = dict.fromkeys(("a", "hidden", "b"))
        scene.request.topics = topics
        scene.request.include_topic_authorized_operations = True
        told = scene.ask()
        assert [each.name for each in scene.passed[0].topics] == ["a", "b"]
        assert [(each.name, each.topic_authorized_operations) for each in told.topics] == [("a", 1001), ("b", 1001)]
        # For version 0 the handler takes a request without topics for one about all of them.
        scene = Scene(ApiKey.METADATA, version, "DESCRIBE TOPIC there", response=response)
        scene.request.topics = topics
        assert scene.ask().topics == [] and scene.passed[0].topics == []
    # No topics at all, since version 1.
    scene = Scene(ApiKey.METADATA, 9)
    scene.request.topics = []
    assert scene.ask().topics == [] and scene.passed[0].topics == []


def test_a_topic_is_made_by_a_look_only_for_those_who_may_create_it() -> None:
    def passed(*denied: str, creates: bool = True, set_so: bool = True) -> list[str]:
        scene = Scene(ApiKey.METADATA, 9, *denied)
        scene.request.topics[0].name = "there"
        scene.request.allow_auto_topic_creation = creates
        scene.call.node.settings.auto_create_topics_enable = set_so
        told = scene.ask()
        refused = {each.name for each in told.topics}
        names = [each.name for each in scene.passed[0].topics]
        assert refused == {"there", "name1"} - set(names)
        return names

    neither = ("CREATE CLUSTER", "CREATE TOPIC name1", "CREATE TOPIC there")
    assert passed() == passed(neither[0]) == passed(*neither[1:]) == ["there", "name1"]
    assert passed(*neither) == ["there"]
    assert passed(*neither, creates=False) == passed(*neither, set_so=False) == ["there", "name1"]
    assert passed("DESCRIBE TOPIC there") == ["name1"]


@pytest.mark.parametrize("key", [ApiKey.METADATA, ApiKey.DESCRIBE_CLUSTER])
def test_the_operations_on_the_cluster_are_shown_to_those_who_may_describe_it(key: ApiKey) -> None:
    for wanted in (True, False):
        for denied in ((), ("DESCRIBE CLUSTER",)):
            scene = Scene(key, 9 if key == ApiKey.METADATA else None, *denied)
            before = scene.response.cluster_authorized_operations
            scene.request.include_cluster_authorized_operations = wanted
            told = scene.ask()
            shown = 0 if denied else 1000 + len("kafka-cluster")
            assert told.cluster_authorized_operations == (shown if wanted else before)


@pytest.mark.parametrize("key", [ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS])
def test_a_list_shows_what_may_be_described(key: ApiKey) -> None:
    from ottla.wire.api.list_groups import ListedGroup, ListGroupsResponse
    from ottla.wire.api.list_transactions import ListTransactionsResponse, TransactionState

    def listed(*denied: str) -> list[str]:
        if key == ApiKey.LIST_GROUPS:
            groups = ListGroupsResponse(groups=[ListedGroup(group_id=each) for each in ("a", "b")])
            return [each.group_id for each in Scene(key, None, *denied, response=groups).ask().groups]
        states = ListTransactionsResponse(
            transaction_states=[TransactionState(transactional_id=each) for each in ("a", "b")]
        )
        return [each.transactional_id for each in Scene(key, None, *denied, response=states).ask().transaction_states]

    assert listed() == listed("DESCRIBE CLUSTER") == ["a", "b"]
    kind = "GROUP" if key == ApiKey.LIST_GROUPS else "TRANSACTIONAL_ID"
    assert listed("DESCRIBE CLUSTER", f"DESCRIBE {kind} a") == ["b"]
    if key == ApiKey.LIST_GROUPS:
        assert listed("DESCRIBE GROUP a") == ["a", "b"], "those who may describe the cluster see all"


def test_a_transaction_is_described_without_the_topics_that_are_hidden() -> None:
    from ottla.wire.api.describe_transactions import DescribeTransactionsResponse, TopicData, TransactionState

    state = TransactionState(transactional_id="t", topics=[TopicData(topic="a"), TopicData(topic="b")])
    response = DescribeTransactionsResponse(transaction_states=[state])
    told = Scene(ApiKey.DESCRIBE_TRANSACTIONS, None, "DESCRIBE TOPIC a", response=response).ask()
    assert [each.topic for each in told.transaction_states[0].topics] == ["b"]


def test_a_group_that_speaks_of_hidden_topics_is_hidden() -> None:
    from ottla.wire.api.consumer_group_describe import (
        Assignment,
        ConsumerGroupDescribeResponse,
        DescribedGroup,
        Member,
        TopicPartitions,
    )

    def group(name: str, **member: Any) -> DescribedGroup:
        return DescribedGroup(group_id=name, members=[Member(member_id="m", **member)])

    def told(*denied: str) -> dict[str, tuple[int, int, int, bool]]:
        where = Assignment(topic_partitions=[TopicPartitions(topic_name="secret")])
        response = ConsumerGroupDescribeResponse(
            groups=[
                group("subscribed", subscribed_topic_names=["open", "secret"]),
                group("assigned", assignment=where),
                group("targeted", target_assignment=where),
                group("other", subscribed_topic_names=["open"]),
                DescribedGroup(group_id="failed", error_code=69, error_message="gone"),
            ]
        )
        scene = Scene(ApiKey.CONSUMER_GROUP_DESCRIBE, None, *denied, response=response)
        scene.request.include_authorized_operations = True
        return {
            each.group_id: (each.error_code, len(each.members), each.authorized_operations, bool(each.error_message))
            for each in scene.ask().groups
        }

    none = DescribedGroup().authorized_operations
    seen = told()
    assert seen["subscribed"] == (0, 1, 1010, False) and seen["failed"] == (69, 0, none, True)
    hidden = told("DESCRIBE TOPIC secret")
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert {name for name, each in hidden.items() if each[:2] == (code, 0) and each[3]} == {
        "subscribed",
        "assigned",
        "targeted",
    }
    assert (hidden["other"], hidden["failed"]) == (seen["other"], seen["failed"])


def _offset_topics(answer: Any) -> dict[str, list[tuple[int, int, int, int]]]:
    return {
        topic.name: [
            (each.partition_index, each.error_code, each.committed_offset, each.committed_leader_epoch)
            for each in topic.partitions
        ]
        for topic in answer.topics
    }


def test_offsets_of_hidden_topics_are_refused_and_left_out_where_all_are_asked_for() -> None:
    from ottla.wire.api import offset_fetch as wire

    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    refused = [(0, code, -1, -1), (1, code, -1, -1)]
    one = wire.OffsetFetchResponse(topics=[wire.OffsetFetchResponseTopic(name=each) for each in ("name0", "name1")])
    scene = Scene(ApiKey.OFFSET_FETCH, 7, "DESCRIBE TOPIC name0", response=one)
    scene.request.topics = None
    assert list(_offset_topics(scene.ask())) == ["name1"] and scene.passed[0].topics is None
    scene = Scene(ApiKey.OFFSET_FETCH, 7, "DESCRIBE TOPIC name0")
    assert _offset_topics(scene.ask()) == {"name0": refused}
    scene = Scene(ApiKey.OFFSET_FETCH, 7, "DESCRIBE TOPIC name0", response=wire.OffsetFetchResponse(error_code=16))
    assert scene.ask().topics == [], "the whole failed"

    groups = [wire.OffsetFetchResponseGroup(group_id=f"group_id{index}", error_code=16 * index) for index in range(2)]
    many = wire.OffsetFetchResponse(groups=groups)
    scene = Scene(ApiKey.OFFSET_FETCH, 9, "DESCRIBE TOPIC name01", "DESCRIBE TOPIC name11", response=many)
    first, second = scene.ask().groups
    assert [[each.name for each in group.topics] for group in scene.passed[0].groups] == [["name00"], ["name10"]]
    assert _offset_topics(first) == {"name01": refused} and second.topics == []
    one_group = wire.OffsetFetchResponse(groups=[wire.OffsetFetchResponseGroup(group_id="group_id0")])
    scene = Scene(ApiKey.OFFSET_FETCH, 9, "DESCRIBE GROUP group_id1", response=one_group)
    told = scene.ask()
    assert [each.group_id for each in scene.passed[0].groups] == ["group_id0"]
    assert [(each.group_id, each.error_code) for each in told.groups] == [
        ("group_id0", 0),
        ("group_id1", ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ]


def test_share_offsets_of_hidden_topics_are_refused() -> None:
    from ottla.wire.api import describe_share_group_offsets as wire

    group = wire.DescribeShareGroupOffsetsResponseGroup(group_id="group_id0")
    response = wire.DescribeShareGroupOffsetsResponse(groups=[group])
    scene = Scene(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        None,
        "DESCRIBE TOPIC topic_name01",
        "DESCRIBE GROUP group_id1",
        response=response,
    )
    shown, refused = scene.ask().groups
    (passed,) = scene.passed[0].groups
    assert passed.group_id == "group_id0" and [each.topic_name for each in passed.topics] == ["topic_name00"]
    (topic,) = shown.topics
    assert topic.topic_name == "topic_name01"
    assert [(each.partition_index, each.error_code, each.start_offset) for each in topic.partitions] == [
        (index, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1) for index in range(2)
    ]
    assert (refused.group_id, refused.error_code) == ("group_id1", ErrorCode.GROUP_AUTHORIZATION_FAILED)
