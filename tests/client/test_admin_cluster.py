"""Replicas, transactions, features and groups of all kinds through the admin client."""

import time
from collections.abc import Callable
from functools import partial

import pytest

from ottla.client import (
    Admin,
    ConfigResource,
    Consumer,
    ErrorCode,
    KafkaError,
    Producer,
    ProducerFenced,
    Replica,
    ResourceType,
    TopicPartition,
)
from ottla.kernel.ids import Uuid
from tests.client.conftest import eventually, refusal, serves

UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION


def node_of(admin: Admin) -> int:
    (node,) = admin.describe_cluster().nodes
    return node.id


def test_a_partition_that_is_where_it_shall_be_does_not_move(admin: Admin, topic: str) -> None:
    one, none = TopicPartition(topic, 0), TopicPartition(topic, 9)
    results = admin.alter_partition_reassignments({one: [node_of(admin)], none: [node_of(admin)]})
    assert one in results.succeeded
    assert results.errors[none].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert one not in admin.list_partition_reassignments([one])
    assert (
        refusal(lambda: admin.alter_partition_reassignments({one: None}).check())
        is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    )


def test_a_replica_moves_to_directories_of_its_broker_only(admin: Admin, topic: str) -> None:
    replica = Replica(topic, 0, node_of(admin))
    (directory,) = admin.describe_log_dirs()[replica.broker]
    if not serves(admin, "AlterReplicaLogDirs"):
        assert refusal(lambda: admin.alter_replica_log_dirs({replica: directory.path}).check()) is UNSUPPORTED
        return
    assert admin.alter_replica_log_dirs({replica: directory.path}).check() == {replica: None}
    assert refusal(lambda: admin.alter_replica_log_dirs({replica: "/not/there"}).check()) is ErrorCode.LOG_DIR_NOT_FOUND


def test_an_open_transaction_is_found_described_and_ended(bootstrap: str, admin: Admin, topic: str, name: str) -> None:
    one = TopicPartition(topic, 1)
    with Producer(bootstrap, transactional_id=name, linger_ms=0) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        offset = producer.send(topic, b"v", partition=1).result(30).offset
        (writer,) = admin.describe_producers([one])[one]
        assert writer.transaction_start_offset == offset
        described = admin.describe_transactions([name])[name]
        assert (described.state, described.partitions) == ("Ongoing", (one,))
        assert described.producer_id == writer.producer_id
        assert described.start_timestamp is not None
        listed = admin.list_transactions(states=["Ongoing"], producer_ids=[writer.producer_id])
        assert [each.transactional_id for each in listed] == [name]

        fenced = admin.fence_producers([name])[name]
        assert fenced.producer_epoch > described.producer_epoch
        with pytest.raises(ProducerFenced):
            producer.commit_transaction()

    def over() -> bool:
        return admin.describe_producers([one])[one][0].transaction_start_offset is None

    eventually(over)
    assert refusal(lambda: admin.abort_transaction(one, offset)) is ErrorCode.INVALID_REQUEST


def test_an_open_transaction_can_be_aborted_where_it_hangs(bootstrap: str, admin: Admin, topic: str, name: str) -> None:
    one = TopicPartition(topic, 0)
    with Producer(bootstrap, transactional_id=name, linger_ms=0) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        offset = producer.send(topic, b"v", partition=0).result(30).offset
        admin.abort_transaction(one, offset)
        with Consumer(bootstrap, isolation_level="read_committed") as reader:
            eventually(lambda: reader.end_offsets([one])[one] > offset)
        producer.abort_transaction()


def test_a_transactional_id_that_nobody_has_used_is_not_found(admin: Admin, name: str) -> None:
    assert admin.describe_transactions([name]).errors[name].code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert admin.list_transactions(states=["Ongoing"], duration_ms=int(time.time() * 1000)) == []


def test_a_feature_is_only_looked_at_when_that_is_asked(admin: Admin) -> None:
    before = admin.describe_features()["metadata.version"]
    assert before.finalized is not None
    assert refusal(
        lambda: admin.update_features({"metadata.version": before.max_supported + 1}, validate_only=True).check()
    ) in (ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FEATURE_UPDATE_FAILED)
    assert admin.describe_features()["metadata.version"] == before


def test_a_broker_that_is_not_registered_is_not_forgotten(admin: Admin) -> None:
    assert refusal(lambda: admin.unregister_broker(4711)) is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_groups_of_other_kinds_are_asked_for_by_their_kind(admin: Admin, name: str) -> None:
    for describe in (admin.describe_share_group, admin.describe_streams_group):
        assert refusal(partial(describe, name)) in (ErrorCode.GROUP_ID_NOT_FOUND, UNSUPPORTED)


def test_what_has_settings_of_its_own_is_listed(admin: Admin, topic: str, name: str) -> None:
    group = ConfigResource(ResourceType.GROUP, f"{name}-group")
    metrics = ConfigResource(ResourceType.CLIENT_METRICS, f"{name}-metrics")
    admin.alter_config(group, {"consumer.session.timeout.ms": "50000"})
    admin.alter_config(metrics, {"interval.ms": "1000"})
    eventually(lambda: {group, metrics} <= set(admin.list_config_resources()))
    assert set(admin.list_config_resources([ResourceType.CLIENT_METRICS])) >= {metrics}
    assert admin.describe_config(metrics)["interval.ms"].value == "1000"
    assert ConfigResource(ResourceType.TOPIC, topic) in admin.list_config_resources([ResourceType.TOPIC])


def test_members_are_removed_from_their_group(bootstrap: str, admin: Admin, topic: str, name: str) -> None:
    with Consumer(bootstrap, group_id=name, group_instance_id="one", enable_auto_commit=False) as consumer:
        consumer.subscribe([topic])
        eventually(lambda: consumer.poll(0.1) == [] and len(consumer.assignment()) == 3)
        assert [one.instance_id for one in admin.describe_group(name).members] == ["one"]
        admin.remove_group_members(name, ["one"])
        assert admin.describe_group(name).members == ()


def test_a_controller_that_cannot_vote_is_refused_with_the_reason(admin: Admin) -> None:
    """Controllers of another cluster get no vote, and none is taken from them."""
    endpoints = {"CONTROLLER": ("127.0.0.1", 1)}
    directory_id = Uuid(b"d" * 16)
    calls: tuple[Callable[[], object], ...] = (
        lambda: admin.add_raft_voter(77, directory_id, endpoints, cluster_id="another"),
        lambda: admin.remove_raft_voter(77, directory_id, cluster_id="another"),
    )
    for asked in calls:
        with pytest.raises(KafkaError) as refused:
            asked()
        assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
        assert "another" in str(refused.value)
