"""A request that asks for more changes than one batch may have records is refused before any of them is looked at."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from ottla.broker.handlers import active_controller, config, controller
from ottla.controller.decision import RECORDS_MAX
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.api import API, ApiKey
from ottla.wire.api import alter_client_quotas as quotas
from ottla.wire.api import alter_configs as configs
from ottla.wire.api import alter_partition_reassignments as moves
from ottla.wire.api import alter_user_scram_credentials as scram
from ottla.wire.api import create_partitions as growth
from ottla.wire.api import create_topics as creation
from ottla.wire.api import delete_topics as deletion
from ottla.wire.api import elect_leaders as election
from ottla.wire.api import incremental_alter_configs as changes
from ottla.wire.compile import decode, encode


def _requests(count: int) -> dict[ApiKey, Any]:
    """A request of each kind for so many changes."""
    names = [str(index) for index in range(count)]
    half = [*range(count // 2)], [*range(count - count // 2)]
    elections = [election.TopicPartitions(topic=str(len(each)), partitions=each) for each in half]
    moved = [
        moves.ReassignableTopic(
            name=str(len(each)), partitions=[moves.ReassignablePartition(partition_index=index) for index in each]
        )
        for each in half
    ]
    return {
        ApiKey.CREATE_TOPICS: creation.CreateTopicsRequest(
            topics=[creation.CreatableTopic(name=each) for each in names]
        ),
        ApiKey.DELETE_TOPICS: deletion.DeleteTopicsRequest(topic_names=names),
        ApiKey.CREATE_PARTITIONS: growth.CreatePartitionsRequest(
            topics=[growth.CreatePartitionsTopic(name=each) for each in names]
        ),
        ApiKey.ALTER_CLIENT_QUOTAS: quotas.AlterClientQuotasRequest(
            entries=[quotas.RequestEntryData(entity=[quotas.EntityData(entity_type="user")]) for _ in names]
        ),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: scram.AlterUserScramCredentialsRequest(
            deletions=[scram.ScramCredentialDeletion(name=each, mechanism=1) for each in names]
        ),
        ApiKey.ELECT_LEADERS: election.ElectLeadersRequest(topic_partitions=elections),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: moves.AlterPartitionReassignmentsRequest(topics=moved),
        ApiKey.ALTER_CONFIGS: configs.AlterConfigsRequest(
            resources=[configs.AlterConfigsResource(resource_type=99, resource_name=each) for each in names]
        ),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: changes.IncrementalAlterConfigsRequest(
            resources=[changes.AlterConfigsResource(resource_type=2, resource_name=each) for each in names]
        ),
    }


KEYS = [*_requests(1)]
BROKER: dict[ApiKey, Any] = {
    **dict.fromkeys(KEYS, controller.decide),
    ApiKey.ALTER_CONFIGS: config.alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: config.incremental_alter_configs,
}
CONTROLLER: dict[ApiKey, Any] = {
    **dict.fromkeys(KEYS, active_controller.decide),
    ApiKey.ALTER_CONFIGS: active_controller.change_at_controller,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: active_controller.change_at_controller,
}


def _call(partitions: int = 0) -> Mock:
    """The call of a request to a node that knows a topic of so many partitions."""
    call = Mock(version=0)
    call.node.image.topics = {"t": Mock(partitions=[None] * partitions)}
    return call


@pytest.mark.parametrize("handlers", [BROKER, CONTROLLER], ids=["broker", "controller"])
@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_more_changes_than_records_are_refused_at_once(key: ApiKey, handlers: dict[ApiKey, Any]) -> None:
    call = _call()
    with pytest.raises(KafkaError) as refused:
        handlers[key](call, _requests(RECORDS_MAX + 1)[key])
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    assert str(RECORDS_MAX + 1) in str(refused.value)
    assert not call.node.mock_calls, "somebody was asked"


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_as_many_changes_as_records_are_not_refused(key: ApiKey) -> None:
    controller.check_changes(_call(), _requests(RECORDS_MAX)[key])


_RESOURCES = {changes.IncrementalAlterConfigsRequest: changes, configs.AlterConfigsRequest: configs}


def _in_one(count: int) -> list[Any]:
    """Requests whose many elements stand where no change is counted."""
    names = [str(index) for index in range(count)]
    entity = [quotas.EntityData(entity_type=name) for name in names]
    return [
        election.ElectLeadersRequest(topic_partitions=[election.TopicPartitions(topic=name) for name in names]),
        moves.AlterPartitionReassignmentsRequest(topics=[moves.ReassignableTopic(name=name) for name in names]),
        *(
            make(
                resources=[
                    module.AlterConfigsResource(
                        resource_type=2,
                        resource_name="t",
                        configs=[module.AlterableConfig(name=name) for name in names],
                    )
                ]
            )
            for make, module in _RESOURCES.items()
        ),
        quotas.AlterClientQuotasRequest(
            entries=[quotas.RequestEntryData(entity=entity[:1], ops=[quotas.OpData(key=name) for name in names])]
        ),
        # An entity has at most two parts.
        quotas.AlterClientQuotasRequest(entries=[quotas.RequestEntryData(entity=[*entity, *entity])]),
    ]


@pytest.mark.parametrize("number", range(6))
def test_elements_that_are_no_changes_are_as_many_at_most(number: int) -> None:
    controller.check_changes(_call(), _in_one(RECORDS_MAX)[number])
    with pytest.raises(KafkaError) as refused:
        controller.check_changes(_call(), _in_one(RECORDS_MAX + 1)[number])
    assert refused.value.code is ErrorCode.POLICY_VIOLATION


def test_topics_may_have_more_configs_together() -> None:
    """A tool repeats all configs of all topics, most of which stay as they are."""
    own = [changes.AlterableConfig(name=str(index)) for index in range(100)]
    topics = [changes.AlterConfigsResource(resource_type=2, resource_name=str(n), configs=own) for n in range(200)]
    controller.check_changes(_call(), changes.IncrementalAlterConfigsRequest(resources=topics))


def test_an_election_of_all_partitions_is_not_refused() -> None:
    controller.check_changes(_call(), election.ElectLeadersRequest(topic_partitions=None))


@pytest.mark.parametrize("handlers", [BROKER, CONTROLLER], ids=["broker", "controller"])
@pytest.mark.parametrize("key", [ApiKey.ELECT_LEADERS, ApiKey.ALTER_PARTITION_REASSIGNMENTS], ids=lambda key: key.name)
def test_as_many_partitions_as_there_are_may_be_named_one_by_one(key: ApiKey, handlers: dict[ApiKey, Any]) -> None:
    """Each stands alone, and Apache Kafka counts none that does not change."""
    call = _call(RECORDS_MAX + 5)
    with pytest.raises(KafkaError):
        handlers[key](call, _requests(RECORDS_MAX + 6)[key])
    assert not call.node.mock_calls
    handlers[key](call, _requests(RECORDS_MAX + 5)[key])
    assert call.node.mock_calls


@pytest.mark.parametrize("key", [ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS], ids=lambda key: key.name)
def test_as_many_configs_as_there_are_topics_may_be_named(key: ApiKey) -> None:
    """MirrorMaker sets those of all topics, most of them to what they are: these need no records."""
    call = Mock(version=0)
    call.node.image.topics = dict.fromkeys(range(RECORDS_MAX + 5))
    controller.check_changes(call, _requests(RECORDS_MAX + 5)[key])
    with pytest.raises(KafkaError):
        controller.check_changes(call, _requests(RECORDS_MAX + 6)[key])


ERRORS: dict[ApiKey, Any] = {
    ApiKey.CREATE_TOPICS: controller.creation_error_response,
    ApiKey.DELETE_TOPICS: controller.deletion_error_response,
    ApiKey.CREATE_PARTITIONS: controller.growth_error_response,
    ApiKey.ALTER_CLIENT_QUOTAS: controller.quotas_error_response,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: controller.credentials_error_response,
    ApiKey.ELECT_LEADERS: controller.election_error_response,
    ApiKey.ALTER_CONFIGS: controller.change_error_response,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: config.change_error_response,
}


@pytest.mark.parametrize("key", ERRORS, ids=lambda key: key.name)
def test_the_error_of_many_changes_is_that_of_few_for_each(key: ApiKey) -> None:
    """The answer to many is made while it is written; an array of few is a list."""
    error, version = KafkaError(ErrorCode.POLICY_VIOLATION, "too many"), API[key].versions[-1]

    def answered(count: int) -> Any:
        written = encode(ERRORS[key](_requests(count)[key], version, error), version)
        return decode(API[key].response, version, written, 0)[0]

    many, (few, more) = answered(5000), (answered(4), answered(6))

    def codes(response: Any) -> list[int]:
        parts = next(value for value in vars_of(response) if isinstance(value, list))
        inner = [each for part in parts for each in getattr(part, "partition_result", [part])]
        return [each.error_code for each in inner]

    assert codes(few) == [ErrorCode.POLICY_VIOLATION] * 4
    assert codes(more) == [ErrorCode.POLICY_VIOLATION] * 6
    assert codes(many) == [ErrorCode.POLICY_VIOLATION] * 5000


def vars_of(message: Any) -> list[Any]:
    return [getattr(message, name) for name in type(message).__slots__]
