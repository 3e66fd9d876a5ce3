"""Every admin call against a real cluster."""

import time

import pytest

from ottla.client import (
    Admin,
    AlterOperation,
    CommittedOffset,
    ConfigResource,
    ErrorCode,
    GroupType,
    KafkaError,
    NewTopic,
    OffsetSpec,
    OttlaError,
    ResourceType,
    TopicPartition,
)
from tests.client.conftest import eventually


def code_of(error: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return error.value.code


def test_a_topic_is_created_described_and_deleted(admin: Admin, name: str) -> None:
    created = admin.create_topic(name, 3, configs={"retention.ms": "60000"})
    assert (created.name, created.partitions, created.replication_factor) == (name, 3, 1)
    assert created.configs["retention.ms"] == "60000"

    described = admin.describe_topic(name)
    assert described.id == created.id
    assert [one.partition for one in described.partitions] == [0, 1, 2]
    (node,) = admin.describe_cluster().nodes
    assert all(one.leader == node and one.isr == (node,) for one in described.partitions)
    assert name in [one.name for one in admin.list_topics()]

    admin.delete_topic(name)
    eventually(lambda: name not in [one.name for one in admin.list_topics()])


def test_errors_of_single_topics_stand_beside_what_went_well(admin: Admin, topic: str) -> None:
    results = admin.create_topics([NewTopic(topic), NewTopic(topic + "-new"), NewTopic("no spaces!")])
    assert set(results.succeeded) == {topic + "-new"}
    assert {name: error.code for name, error in results.errors.items()} == {
        topic: ErrorCode.TOPIC_ALREADY_EXISTS,
        "no spaces!": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    with pytest.raises(KafkaError) as error:
        results[topic]
    assert code_of(error) == ErrorCode.TOPIC_ALREADY_EXISTS


def test_what_does_not_exist_is_said_at_once(admin: Admin, name: str) -> None:
    begin = time.monotonic()
    for call in (
        lambda: admin.describe_topic(name),
        lambda: admin.delete_topic(name),
        lambda: admin.list_offset(TopicPartition(name, 0), OffsetSpec.LATEST),
    ):
        with pytest.raises(KafkaError) as error:
            call()
        assert code_of(error) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError) as error:
        admin.describe_group(name)
    assert code_of(error) == ErrorCode.GROUP_ID_NOT_FOUND
    # A call that asks again does so for 60 s.
    assert time.monotonic() - begin < 50


def test_validate_only_creates_nothing(admin: Admin, name: str) -> None:
    admin.create_topic(name, 2, validate_only=True)
    with pytest.raises(KafkaError):
        admin.describe_topic(name)


def test_partitions_grow_and_never_shrink(admin: Admin, topic: str) -> None:
    admin.create_partitions({topic: 5}).check()
    eventually(lambda: len(admin.describe_topic(topic).partitions) == 5)
    with pytest.raises(KafkaError) as error:
        admin.create_partitions({topic: 2}).check()
    assert code_of(error) == ErrorCode.INVALID_PARTITIONS


def test_settings_are_set_appended_and_put_back(admin: Admin, topic: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    before = admin.describe_config(resource, ["retention.ms"])["retention.ms"]
    assert before.is_default

    admin.alter_config(resource, {"retention.ms": "1234", "cleanup.policy": (AlterOperation.APPEND, "compact")})
    names = ["retention.ms", "cleanup.policy"]
    eventually(lambda: admin.describe_config(resource, names)["retention.ms"].value == "1234")
    changed = admin.describe_config(resource, names)
    assert changed["retention.ms"].value == "1234"
    assert not changed["retention.ms"].is_default
    assert changed["cleanup.policy"].value == "delete,compact"

    admin.alter_config(resource, {"retention.ms": None})
    eventually(lambda: admin.describe_config(resource, names)["retention.ms"].value == before.value)
    with pytest.raises(KafkaError) as error:
        admin.alter_config(resource, {"retention.ms": "soon"})
    assert code_of(error) == ErrorCode.INVALID_CONFIG


def test_a_broker_describes_its_own_settings(admin: Admin) -> None:
    (node,) = admin.describe_cluster().nodes
    entries = admin.describe_config(ConfigResource(ResourceType.BROKER, str(node.id)))
    assert entries["node.id"].value == str(node.id)
    assert entries["node.id"].read_only


def test_offsets_of_a_group_are_altered_listed_and_forgotten(admin: Admin, topic: str, name: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    admin.alter_group_offsets(name, {first: 0, second: CommittedOffset(0, "why")}).check()
    assert admin.list_group_offsets(name) == {first: CommittedOffset(0), second: CommittedOffset(0, "why")}
    assert [(one.partition, one.committed, one.end_offset, one.lag) for one in admin.group_lag(name)] == [
        (first, 0, 0, 0),
        (second, 0, 0, 0),
    ]
    assert name in [one.id for one in admin.list_groups()]
    assert (admin.describe_group(name).state, admin.describe_group(name).type) == ("Empty", GroupType.CLASSIC)

    admin.delete_group_offsets(name, [first]).check()
    assert list(admin.list_group_offsets(name)) == [second]
    admin.delete_group(name)
    assert name not in [one.id for one in admin.list_groups()]


def test_an_empty_partition_begins_and_ends_at_zero(admin: Admin, topic: str) -> None:
    partition = TopicPartition(topic, 2)
    assert admin.list_offset(partition, OffsetSpec.EARLIEST).offset == 0
    assert admin.list_offset(partition, OffsetSpec.LATEST).offset == 0
    assert admin.list_offset(partition, 1_000).offset == -1
    assert admin.delete_records({partition: -1})[partition] == 0


def test_log_directories_hold_the_replicas(admin: Admin, topic: str) -> None:
    (node,) = admin.describe_cluster().nodes
    partition = TopicPartition(topic, 1)

    def replicas() -> list[TopicPartition]:
        directories = admin.describe_log_dirs(topics=[partition])[node.id]
        return [one.partition for directory in directories for one in directory.replicas]

    eventually(lambda: replicas() == [partition])


def test_an_unknown_setting_is_refused_with_the_nearest_right_name(bootstrap: str) -> None:
    with pytest.raises(OttlaError, match=r"did you mean default\.api\.timeout\.ms"):
        Admin(bootstrap, default_api_timeout=5)  # type: ignore[call-arg]


def test_a_broker_that_is_not_there_is_named_in_the_error() -> None:
    with (
        Admin("127.0.0.1:1", default_api_timeout_ms=100) as admin,
        pytest.raises(OttlaError, match=r"127\.0\.0\.1:1 cannot be reached \(connection refused"),
    ):
        admin.list_topics()
