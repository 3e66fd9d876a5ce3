"""CreateTopics and CreatePartitions."""

import pytest

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.topic_name import check_name, is_legal_name
from ottla.wire.api.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ottla.wire.api.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from ottla.wire.compile import encode
from ottla.wire.record.metadata import ConfigRecord, PartitionRecord, TopicRecord
from tests.controller.scene import Cluster, directory

_UNREACHABLE = (
    "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because only 1 "
    "broker(s) are registered or some brokers have all their log directories cordoned."
)


def test_a_topic_is_its_name_then_its_settings_then_its_partitions() -> None:
    cluster = Cluster()
    before = len(cluster.log)
    result = cluster.create("flights", num_partitions=2, configs={"retention.ms": "1000"})
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)
    assert [type(record) for record in cluster.log[before:]] == [
        TopicRecord,
        ConfigRecord,
        PartitionRecord,
        PartitionRecord,
    ]
    topic = cluster.image.topics["flights"]
    assert topic.topic_id == result.topic_id
    assert [partition.leader for partition in topic.partitions] == [1, 1]
    assert topic.partitions[0].directories == (directory(10),)
    assert cluster.image.config(2, "flights") == {"retention.ms": "1000"}


def test_what_is_not_said_is_the_brokers_default() -> None:
    cluster = Cluster(num_partitions="3")
    result = cluster.create("flights")
    assert (result.num_partitions, result.replication_factor) == (3, 1)
    assert len(cluster.image.topics["flights"].partitions) == 3


def test_the_response_tells_every_setting_and_where_it_comes_from() -> None:
    cluster = Cluster(log_retention_bytes="4096")
    result = cluster.create("flights", configs={"cleanup.policy": "compact"})
    told = {each.name: (each.value, each.config_source) for each in result.configs or []}
    assert len(told) == 33
    assert told["cleanup.policy"] == ("compact", 1)
    assert told["retention.bytes"] == ("4096", 4)
    assert told["segment.bytes"] == ("1073741824", 5)


def test_a_result_without_settings_has_an_empty_list_of_them() -> None:
    """Java's Admin fails on null, which the schema allows."""
    result = Cluster().create("a name with blanks")
    assert result.configs == []


@pytest.mark.parametrize("version", [2, 4, 5, 7])
def test_every_version_of_the_response_can_be_written(version: int) -> None:
    cluster = Cluster()
    response = cluster.ask(
        CreateTopicsRequest(topics=[CreatableTopic(name="a", num_partitions=1, replication_factor=1)])
    )
    assert encode(response, version)


def test_validate_only_says_what_would_be_and_writes_nothing() -> None:
    cluster = Cluster()
    before = len(cluster.log)
    topic = CreatableTopic(name="flights", num_partitions=2, replication_factor=1)
    response = cluster.ask(CreateTopicsRequest(topics=[topic], validate_only=True))
    assert response.topics[0].error_code == ErrorCode.NONE
    assert response.topics[0].num_partitions == 2
    assert len(cluster.log) == before


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"num_partitions": 0}, "INVALID_PARTITIONS", "Number of partitions was set to an invalid non-positive value."),
        (
            {"num_partitions": -2},
            "INVALID_PARTITIONS",
            "Number of partitions was set to an invalid non-positive value.",
        ),
        *(
            (
                {"replication_factor": factor},
                "INVALID_REPLICATION_FACTOR",
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
            for factor in (0, -2, -32768)
        ),
        (
            {"replication_factor": 3},
            "INVALID_REPLICATION_FACTOR",
            _UNREACHABLE,
        ),
        (
            {"configs": {"retention.ms": None}},
            "INVALID_CONFIG",
            "Null value not supported for topic configs: retention.ms",
        ),
    ],
)
def test_a_topic_that_cannot_be_is_refused_in_kafkas_words(fields: dict[str, object], code: str, message: str) -> None:
    cluster = Cluster()
    result = cluster.create("flights", **fields)  # type: ignore[arg-type]
    assert (ErrorCode(result.error_code).name, result.error_message) == (code, message)
    assert "flights" not in cluster.image.topics


@pytest.mark.parametrize("configs", [{"retention.ms": "soon"}, {"no.such.setting": "1"}, {"cleanup.policy": "keep"}])
def test_a_setting_that_no_topic_can_have_is_invalid_config(configs: dict[str, str | None]) -> None:
    assert Cluster().create("flights", configs=configs).error_code == ErrorCode.INVALID_CONFIG


def test_a_topic_is_made_once() -> None:
    cluster = Cluster()
    cluster.create("a_b")
    result = cluster.create("a_b")
    assert result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert result.error_message == "Topic 'a_b' already exists."


def test_names_that_metrics_cannot_tell_apart_collide() -> None:
    cluster = Cluster()
    cluster.create("a.b_c")
    result = cluster.create("a_b.c")
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert result.error_message == "Topic 'a_b.c' collides with existing topic: a.b_c"
    assert cluster.create("abc").error_code == ErrorCode.NONE


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "é", "x" * 250])
def test_a_name_that_is_not_legal_is_refused(name: str) -> None:
    assert not is_legal_name(name)
    with pytest.raises(KafkaError, match=r"^INVALID_TOPIC_EXCEPTION: Topic name is invalid: "):
        check_name(name)


def test_the_longest_name_is_legal() -> None:
    assert is_legal_name("x" * 249)


def test_a_name_that_stands_twice_in_a_request_makes_no_topic() -> None:
    cluster = Cluster()
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("a", "b", "a")]
    response = cluster.ask(CreateTopicsRequest(topics=topics))
    answers = {each.name: (each.error_code, each.error_message) for each in response.topics}
    assert answers == {"b": (0, None), "a": (ErrorCode.INVALID_REQUEST, "Duplicate topic name.")}
    assert list(cluster.image.topics) == ["b"]


def test_the_metadata_topic_cannot_be_made() -> None:
    result = Cluster().create("__cluster_metadata")
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert result.error_message == "Creation of internal topic __cluster_metadata is prohibited."


def test_a_request_for_too_many_partitions_makes_none_of_its_topics() -> None:
    cluster = Cluster()
    topics = [
        CreatableTopic(name=name, num_partitions=count, replication_factor=1)
        for name, count in (("a", 1), ("b", 10_000))
    ]
    response = cluster.ask(CreateTopicsRequest(topics=topics))
    why = "Excessively large number of partitions per request."
    assert [(each.error_code, each.error_message) for each in response.topics] == [
        (ErrorCode.POLICY_VIOLATION, why),
        (ErrorCode.POLICY_VIOLATION, why),
    ]
    assert not cluster.image.topics


def test_a_manual_assignment_is_taken_as_it_is() -> None:
    cluster = Cluster(brokers=3)
    assignments = [
        CreatableReplicaAssignment(partition_index=1, broker_ids=[3, 1]),
        CreatableReplicaAssignment(partition_index=0, broker_ids=[2, 3]),
    ]
    cluster.create("flights", assignments=assignments)
    partitions = cluster.image.topics["flights"].partitions
    assert [partition.replicas for partition in partitions] == [(2, 3), (3, 1)]
    assert [partition.leader for partition in partitions] == [2, 3]


@pytest.mark.parametrize(
    ("placed", "message"),
    [
        ({0: [1], 2: [1]}, "partitions should be a consecutive 0-based integer sequence"),
        ({0: [9]}, "The manual partition assignment includes broker 9, but no such broker is registered."),
        ({0: [1, 1]}, "The manual partition assignment includes the broker 1 more than once."),
        ({0: []}, "The manual partition assignment includes an empty replica list."),
    ],
)
def test_a_manual_assignment_that_cannot_be_is_refused(placed: dict[int, list[int]], message: str) -> None:
    assignments = [CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in placed.items()]
    result = Cluster().create("flights", assignments=assignments)
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def test_a_manual_assignment_goes_without_a_count() -> None:
    assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
    result = Cluster().create("flights", num_partitions=1, assignments=assignments)
    assert result.error_code == ErrorCode.INVALID_REQUEST


def test_leaders_go_round_the_brokers_and_replicas_are_distinct() -> None:
    cluster = Cluster(brokers=3)
    cluster.create("flights", num_partitions=6, replication_factor=2)
    partitions = cluster.image.topics["flights"].partitions
    assert sorted(partition.leader for partition in partitions) == [1, 1, 2, 2, 3, 3]
    assert all(len(set(partition.replicas)) == 2 for partition in partitions)


def test_a_broker_with_two_directories_chooses_among_them_itself() -> None:
    cluster = Cluster(directories=2)
    cluster.create("flights")
    assert cluster.image.topics["flights"].partitions[0].directories == (bytes(15) + b"\x01",)


# ---- CreatePartitions


def add(cluster: Cluster, count: int, assignments: list[list[int]] | None = None) -> CreatePartitionsTopicResult:
    given = None if assignments is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    topic = CreatePartitionsTopic(name="flights", count=count, assignments=given)
    response = cluster.ask(CreatePartitionsRequest(topics=[topic]))
    result: CreatePartitionsTopicResult = response.results[0]
    return result


def test_partitions_are_added_behind_those_that_are_there() -> None:
    cluster = Cluster()
    cluster.create("flights", num_partitions=2)
    before = cluster.image.topics["flights"].partitions
    assert add(cluster, 5).error_code == ErrorCode.NONE
    after = cluster.image.topics["flights"].partitions
    assert len(after) == 5
    assert after[:2] == before


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (2, "Topic already has 2 partition(s)."),
        (1, "The topic flights currently has 2 partition(s); 1 would not be an increase."),
    ],
)
def test_partitions_are_never_taken_away(count: int, message: str) -> None:
    cluster = Cluster()
    cluster.create("flights", num_partitions=2)
    result = add(cluster, count)
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_PARTITIONS, message)


def test_as_many_assignments_are_needed_as_partitions_are_added() -> None:
    cluster = Cluster()
    cluster.create("flights", num_partitions=2)
    result = add(cluster, 5, [[1]])
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "Attempted to add 3 additional partition(s), but only 1 assignment(s)" in (result.error_message or "")
    assert add(cluster, 3, [[1]]).error_code == ErrorCode.NONE


def test_too_many_partitions_are_not_added() -> None:
    cluster = Cluster()
    cluster.create("flights", num_partitions=1)
    assert add(cluster, 10_003).error_code == ErrorCode.POLICY_VIOLATION
    assert len(cluster.image.topics["flights"].partitions) == 1


def test_a_topic_that_is_not_there_gets_no_partitions() -> None:
    result = add(Cluster(), 3)
    assert (result.error_code, result.error_message) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)


@pytest.mark.parametrize(
    ("partitions", "factor", "code"),
    [
        (1, 1, ErrorCode.NONE),
        (-1, -1, ErrorCode.NONE),
        (-1, 1, ErrorCode.NONE),
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-2, 1, ErrorCode.INVALID_PARTITIONS),
        (-(2**31), -1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, -2, ErrorCode.INVALID_REPLICATION_FACTOR),
        (-1, -(2**15), ErrorCode.INVALID_REPLICATION_FACTOR),
        (0, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_counts_are_positive_or_the_default(partitions: int, factor: int, code: ErrorCode) -> None:
    cluster = Cluster(num_partitions="3")
    result = cluster.create("flights", num_partitions=partitions, replication_factor=factor)
    assert result.error_code == code
    found = cluster.image.topics.get("flights")
    expected = {} if code else {"flights": 3 if partitions == -1 else partitions}
    assert expected == ({} if found is None else {"flights": len(found.partitions)})


@pytest.mark.parametrize("others", [["plain"], ["plain", "a_c"], ["a_c", "plain"]])
def test_one_name_among_others_that_collides_is_refused_alone(others: list[str]) -> None:
    cluster = Cluster()
    cluster.create("a.b")
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ["a_b", *others]]
    response = cluster.ask(CreateTopicsRequest(topics=topics))
    assert {each.name: each.error_code for each in response.topics} == {
        "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        **dict.fromkeys(others, ErrorCode.NONE),
    }


def test_a_partition_that_is_placed_twice_makes_no_topic() -> None:
    cluster = Cluster()
    twice = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1]) for _ in range(2)]
    result = cluster.create("flights", assignments=twice)
    assert (result.error_code, result.error_message) == (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "Found multiple manual partition assignments for partition 0",
    )
    assert "flights" not in cluster.image.topics


def test_a_topic_that_stands_twice_gets_no_partitions_and_the_others_do() -> None:
    cluster = Cluster()
    for name in ("a", "b"):
        cluster.create(name, num_partitions=1)
    topics = [CreatePartitionsTopic(name=name, count=2, assignments=None) for name in ("a", "b", "a")]
    answer = cluster.ask(CreatePartitionsRequest(topics=topics))
    assert [(one.name, one.error_code, one.error_message) for one in answer.results] == [
        ("a", ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
        ("b", ErrorCode.NONE, None),
    ]
    assert {name: len(topic.partitions) for name, topic in cluster.image.topics.items()} == {"a": 1, "b": 2}


def test_partitions_that_are_too_many_together_are_added_to_no_topic() -> None:
    cluster = Cluster()
    for name in ("a", "b"):
        cluster.create(name, num_partitions=1)
    topics = [CreatePartitionsTopic(name=name, count=6_000, assignments=None) for name in ("a", "b", "none")]
    answer = cluster.ask(CreatePartitionsRequest(topics=topics))
    assert {one.error_code for one in answer.results} == {ErrorCode.POLICY_VIOLATION}
    assert all(one.error_message for one in answer.results)
    assert {len(topic.partitions) for topic in cluster.image.topics.values()} == {1}


def test_an_addition_that_is_only_checked_adds_nothing() -> None:
    cluster = Cluster()
    cluster.create("a", num_partitions=1)
    topics = [CreatePartitionsTopic(name="a", count=2, assignments=None)]
    answer = cluster.ask(CreatePartitionsRequest(topics=topics, validate_only=True))
    assert answer.results[0].error_code == ErrorCode.NONE
    assert len(cluster.image.topics["a"].partitions) == 1
