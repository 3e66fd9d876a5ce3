"""Requests with many names: deciding them takes a step for each name, and none for each pair of names."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.controller import create_topics, draft
from ottla.controller.acl import describe_acls, filter_of
from ottla.controller.config import effective_topic_configs
from ottla.controller.quota import describe_client_quotas
from ottla.controller.scram import describe_user_scram_credentials
from ottla.metadata.image import TOPIC
from ottla.metadata.partition_change import changed
from ottla.wire.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.api.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from ottla.wire.api.create_acls import CreateAclsRequest
from ottla.wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.api.delete_acls import DeleteAclsRequest
from ottla.wire.api.describe_acls import DescribeAclsRequest
from ottla.wire.api.describe_client_quotas import DescribeClientQuotasRequest
from ottla.wire.api.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from ottla.wire.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from ottla.wire.record.metadata import ClientQuotaRecord, EntityData
from tests.controller.scene import Cluster, ended
from tests.controller.test_acl import creation, filter_by
from tests.controller.test_config import APPEND, OK, SUBTRACT, change

_COUNT = 300


class _Name(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        _Name.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


@pytest.fixture
def names() -> Iterator[list[str]]:
    """Many names, of which one stands there twice."""
    made = [_Name(f"name-{number}") for number in range(_COUNT)]
    _Name.compared = 0
    yield [*made, _Name("name-7")]
    # A few for each name.
    assert _Name.compared < 20 * _COUNT


def test_topics_that_are_made(names: list[str]) -> None:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    answers = Cluster().ask(CreateTopicsRequest(topics=topics)).topics
    assert len(answers) == _COUNT
    assert [str(each.name) for each in answers if each.error_code] == ["name-7"]


def test_topics_that_are_made_with_the_same_configs(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = Mock(side_effect=effective_topic_configs)
    monkeypatch.setattr(create_topics, "effective_topic_configs", resolve)
    topics = [
        CreatableTopic(
            name=f"t{number}",
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name="retention.ms", value=f"{number % 2}")] if number % 3 else [],
        )
        for number in range(_COUNT)
    ]
    answers = Cluster().ask(CreateTopicsRequest(topics=topics)).topics
    found = [{each.name: each.value for each in answer.configs}["retention.ms"] for answer in answers]
    assert found == [f"{number % 2}" if number % 3 else "604800000" for number in range(_COUNT)]
    assert resolve.call_count == 3


def test_topics_that_grow(names: list[str]) -> None:
    topics = [CreatePartitionsTopic(name=name, count=2) for name in names]
    answers = Cluster().ask(CreatePartitionsRequest(topics=topics)).results
    assert len(answers) == _COUNT


def test_users_that_are_described(names: list[str]) -> None:
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names])
    assert len(ended(describe_user_scram_credentials(Cluster().image, request)).results) == _COUNT


def test_a_partition_that_is_moved_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Mock(side_effect=changed)
    monkeypatch.setattr(draft, "changed", made)
    cluster = Cluster(brokers=3)
    cluster.create("t", replication_factor=1, num_partitions=1)
    moves = [ReassignablePartition(partition_index=0, replicas=[1 + number % 3]) for number in range(_COUNT)]
    topics = [ReassignableTopic(name="t", partitions=moves)]
    [answer] = cluster.ask(AlterPartitionReassignmentsRequest(topics=topics)).responses
    assert len(answer.partitions) == _COUNT
    assert made.call_count <= _COUNT


def test_moves_that_are_listed_partition_by_partition() -> None:
    class Index(int):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Index.compared += 1
            return int.__eq__(self, other)

        __hash__ = int.__hash__

    cluster = Cluster(brokers=2)
    cluster.create("t", replication_factor=1, num_partitions=_COUNT)
    everything = [ReassignablePartition(partition_index=index, replicas=[1, 2]) for index in range(_COUNT)]
    cluster.ask(AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=everything)]))
    indexes: list[int] = [Index(index) for index in range(_COUNT)]
    asked = [ListPartitionReassignmentsTopics(name="t", partition_indexes=indexes)]
    [found] = cluster.ask(ListPartitionReassignmentsRequest(topics=asked)).topics
    assert len(found.partitions) == _COUNT
    assert Index.compared < 20 * _COUNT


@pytest.mark.parametrize("by", ["name", "principal"])
def test_rules_that_are_deleted_by_a_filter_each(names: list[str], by: str) -> None:
    cluster, wanted = Cluster(), names[:-1]
    rules = [creation(resource_name=name, principal=_Name(f"User:{name}")) for name in wanted]
    cluster.ask(CreateAclsRequest(creations=rules))
    for rule in rules:
        # Equal to the rule's own, and not the same objects, as in a request.
        rule.resource_name, rule.principal = _Name(rule.resource_name), _Name(rule.principal)
    filters = [
        filter_by(resource_name_filter=rule.resource_name)
        if by == "name"
        else filter_by(principal_filter=rule.principal)
        for rule in rules[1:]
    ]
    results = cluster.ask(DeleteAclsRequest(filters=filters)).filter_results
    assert [len(each.matching_acls) for each in results] == [1] * (_COUNT - 1)
    assert [rule.resource_name for rule in cluster.image.acls.values()] == ["name-0"]


def test_what_there_is_much_of_is_described_in_steps() -> None:
    cluster, count = Cluster(), 600
    cluster.ask(CreateAclsRequest(creations=[creation(resource_name=f"{n}") for n in range(count)]))
    user = AlterUserScramCredentialsRequest(
        upsertions=[
            ScramCredentialUpsertion(
                name=f"{n}", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"password" * 4
            )
            for n in range(count)
        ]
    )
    cluster.ask(user)
    for number in range(count):
        parts = [EntityData(entity_type="user", entity_name=f"{number}")]
        cluster.append([ClientQuotaRecord(entity=parts, key="producer_byte_rate", value=1.0)])
    everything = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    image = cluster.image
    works: list[tuple[Generator[None, None, Any], str]] = [
        (describe_acls(image.acls.values(), filter_of(everything)), "resources"),
        (describe_client_quotas(image, DescribeClientQuotasRequest(components=[])), "entries"),
        (describe_user_scram_credentials(image, DescribeUserScramCredentialsRequest(users=None)), "results"),
    ]
    for work, name in works:
        steps: list[int] = []
        assert len(getattr(ended(work, steps), name)) == count
        assert len(steps) >= 2


def test_values_that_come_into_a_list_and_go() -> None:
    cluster = Cluster()
    cluster.create("t")
    name = "leader.replication.throttled.replicas"
    assert change(cluster, TOPIC, "t", (name, APPEND, "0:1,5:1,0:1,7:1,5:1")) == OK
    assert cluster.image.config(TOPIC, "t")[name] == "0:1,5:1,7:1"
    # By pairs they would take minutes. No setting takes so long a text.
    many = ",".join(f"{number}:1" for number in range(5, 100_000))
    assert change(cluster, TOPIC, "t", (name, APPEND, many))[0] == "INVALID_CONFIG"
    assert change(cluster, TOPIC, "t", (name, SUBTRACT, many)) == OK
    assert cluster.image.config(TOPIC, "t")[name] == "0:1"
