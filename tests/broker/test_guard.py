"""Guards API by API: which questions are asked, what the handler is still asked, and what is said of the rest.

What Apache answers to the same requests is compared in tests/interop.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker.guard.authorizer import CODES
from ottla.broker.guard.guards import GUARDS
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.security.acl import AclResource
from ottla.wire.api import API, ApiKey
from ottla.wire.schema import fields
from tests.broker.guard_scene import Scene, codes_of, texts

#: API (and its version, when it is not the newest): the questions. A question about `each` is asked of every element of
#: the list, and refuses that one alone; the others refuse the request.
TABLE = """
ApiVersions SaslHandshake SaslAuthenticate GetTelemetrySubscriptions PushTelemetry ListTransactions DescribeCluster
    CreateDelegationToken RenewDelegationToken ExpireDelegationToken DescribeDelegationToken Fetch :
Produce-12 : each WRITE TOPIC name
Metadata-9 : each DESCRIBE TOPIC name ; CREATE CLUSTER
DescribeTopicPartitions ListOffsets : each DESCRIBE TOPIC name
DeleteRecords : each DELETE TOPIC name
DescribeProducers : each READ TOPIC name
CreatePartitions : each ALTER TOPIC name
FindCoordinator : each DESCRIBE GROUP coordinator_keys
FindCoordinator-3 : DESCRIBE GROUP key
JoinGroup SyncGroup Heartbeat LeaveGroup ShareFetch ShareAcknowledge : READ GROUP group_id
OffsetCommit-9 : READ GROUP group_id ; each READ TOPIC name
OffsetFetch-7 : DESCRIBE GROUP group_id ; each DESCRIBE TOPIC name
OffsetDelete : DELETE GROUP group_id ; each READ TOPIC name
DescribeGroups : each DESCRIBE GROUP groups
ConsumerGroupDescribe ShareGroupDescribe StreamsGroupDescribe : each DESCRIBE GROUP group_ids
DeleteGroups : each DELETE GROUP groups_names
AlterShareGroupOffsets : READ GROUP group_id ; each READ TOPIC topic_name
DeleteShareGroupOffsets : DELETE GROUP group_id ; each READ TOPIC topic_name
InitProducerId EndTxn : WRITE TRANSACTIONAL_ID transactional_id
AddOffsetsToTxn : WRITE TRANSACTIONAL_ID transactional_id ; READ GROUP group_id
TxnOffsetCommit : WRITE TRANSACTIONAL_ID transactional_id ; READ GROUP group_id ; each READ TOPIC name
DescribeTransactions : each DESCRIBE TRANSACTIONAL_ID transactional_ids
ListConfigResources DescribeClientQuotas : DESCRIBE_CONFIGS CLUSTER
AlterClientQuotas : ALTER_CONFIGS CLUSTER
DescribeQuorum DescribeLogDirs DescribeUserScramCredentials DescribeAcls ListPartitionReassignments : DESCRIBE CLUSTER
AddRaftVoter RemoveRaftVoter AlterReplicaLogDirs AlterUserScramCredentials CreateAcls DeleteAcls UnregisterBroker
    ElectLeaders AlterPartitionReassignments UpdateFeatures : ALTER CLUSTER
AddPartitionsToTxn InitializeShareGroupState ReadShareGroupState WriteShareGroupState DeleteShareGroupState
    ReadShareGroupStateSummary BrokerRegistration BrokerHeartbeat ControllerRegistration AlterPartition
    AllocateProducerIds AssignReplicasToDirs Envelope FetchSnapshot Vote BeginQuorumEpoch EndQuorumEpoch
    UpdateRaftVoter : CLUSTER_ACTION CLUSTER
"""
_KEYS = {API[ApiKey(key)].name: ApiKey(key) for key in GUARDS}
#: Asked in another form below: with an alternative, in two levels, or by kind.
_APART = {
    "OffsetForLeaderEpoch",
    "CreateTopics",
    "DeleteTopics",
    "DescribeConfigs",
    "AlterConfigs",
    "IncrementalAlterConfigs",
    "ConsumerGroupHeartbeat",
    "ShareGroupHeartbeat",
    "StreamsGroupHeartbeat",
    "ListGroups",
    "DescribeShareGroupOffsets",
    "WriteTxnMarkers",
}


#: The handler is asked where no topic is left, too: about the brokers, or whether there is the group.
_ASKS_ALL_THE_SAME = {
    ApiKey.METADATA,
    ApiKey.OFFSET_FETCH,
    ApiKey.OFFSET_DELETE,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
}


def _names(questions: list[str]) -> set[str]:
    return {each.split()[2] for each in questions}


def _rows() -> Iterator[tuple[ApiKey, int | None, list[str], list[str]]]:
    """(API, version, questions about the whole, questions about parts)."""
    apis: list[str] = []
    for line in TABLE.strip().splitlines():
        names, colon, asked = line.partition(":")
        apis += names.split()
        if colon:
            questions = [each.strip() for each in asked.split(";") if each.strip()]
            whole = [each for each in questions if not each.startswith("each ")]
            parts = [each.removeprefix("each ") for each in questions if each.startswith("each ")]
            for api in apis:
                name, _, version = api.partition("-")
                yield _KEYS[name], int(version) if version else None, whole, parts
            apis = []


ROWS = list(_rows())


def test_the_table_has_every_api() -> None:
    named = {API[key].name for key, _, _, _ in ROWS}
    assert named | _APART == set(_KEYS) and not named & _APART


@pytest.mark.parametrize(("key", "version", "whole", "parts"), ROWS, ids=[API[row[0]].name for row in ROWS])
def test_what_an_api_asks_and_what_a_refusal_takes_away(
    key: ApiKey, version: int | None, whole: list[str], parts: list[str]
) -> None:
    def scene(*denied: str) -> Scene:
        made = Scene(key, version, *denied)
        if key == ApiKey.PRODUCE:
            made.request.transactional_id = None
        return made

    free = scene()
    free.ask()
    each = [f"{question}{index}" for question in parts for index in range(2)]
    assert sorted(free.authorizer.questions) == sorted(whole + each)
    # Whether it may create what is missing is asked twice, and the second answer counts.
    assert free.authorizer.logged == {*whole, *each} - ({"CREATE CLUSTER"} if key == ApiKey.METADATA else set())
    assert free.passed == [free.request]
    for question in whole:
        if key == ApiKey.METADATA:
            continue
        refused = scene(question)
        with pytest.raises(KafkaError) as caught:
            refused.ask()
        assert caught.value.code is CODES[AclResource[question.split()[1]]]
        assert refused.passed == [], "nothing was done"
    for question in each:
        _, kind, name = question.split()
        refused = scene(question)
        response = refused.ask()
        (passed,) = refused.passed
        assert texts(free.request) - texts(passed) >= {name}, "the handler does not hear of it"
        kept = name[:-1] + "10"[int(name[-1])]
        assert kept in texts(passed), "the other one it does"
        assert codes_of(response, name) == {CODES[AclResource[kind]]}
        assert kept not in texts(response)
    if each:
        refused = scene(*each)
        response = refused.ask()
        if key in _ASKS_ALL_THE_SAME:
            assert not _names(each) & texts(refused.passed)
        else:
            assert refused.passed == [], "nothing is left for the handler"
        for question in each:
            assert codes_of(response, question.split()[2]) == {CODES[AclResource[question.split()[1]]]}


# ---- refusals of an own form


def _refused(key: ApiKey, code: ErrorCode, version: int | None = None, **given: Any) -> Any:
    scene = Scene(key, version)
    for field, value in given.items():
        setattr(scene.request, field, value)
    return scene.handler.error_response(scene.request, scene.version, KafkaError(code))


def test_refusals_have_apache_s_details() -> None:
    topic, group, cluster = (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    )
    told = _refused(ApiKey.DELETE_RECORDS, topic)
    assert {each.low_watermark for one in told.topics for each in one.partitions} == {-1}
    for version in (3, 4):
        told = _refused(ApiKey.FIND_COORDINATOR, group, version)
        for each in told.coordinators if version == 4 else (told,):
            assert (each.node_id, each.port, each.error_code) == (-1, -1, group)
            assert each.error_message == "Group authorization failed."
    assert [_refused(ApiKey.JOIN_GROUP, group, version).protocol_name for version in (6, 7)] == ["", None]
    told = _refused(ApiKey.CREATE_TOPICS, topic)
    assert [(each.error_message, each.configs) for each in told.topics] == [("Authorization failed.", [])] * 2
    told = _refused(ApiKey.ALTER_REPLICA_LOG_DIRS, cluster)
    assert [(each.topic_name, [one.partition_index for one in each.partitions]) for each in told.results] == [
        (f"name{suffix}", [0, 1]) for suffix in ("00", "01", "10", "11")
    ]
    told = _refused(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, cluster)
    assert [(each.user, each.error_code, each.error_message) for each in told.results] == [("", cluster, None)]
    told = _refused(ApiKey.ALTER_PARTITION_REASSIGNMENTS, cluster)
    assert [
        (each.name, [(one.error_code, one.error_message) for one in each.partitions]) for each in told.responses
    ] == [(f"name{index}", [(cluster, None)] * 2) for index in range(2)]
    told = _refused(ApiKey.LIST_PARTITION_REASSIGNMENTS, cluster)
    assert told.error_code == cluster
    assert [(each.name, [one.partition_index for one in each.partitions]) for each in told.topics] == [
        (f"name{index}", [0, 1]) for index in range(2)
    ]
    assert _refused(ApiKey.LIST_PARTITION_REASSIGNMENTS, cluster, topics=None).topics == []
    for key in (ApiKey.ALTER_SHARE_GROUP_OFFSETS, ApiKey.DELETE_SHARE_GROUP_OFFSETS):
        told = _refused(key, group)
        assert (told.error_code, told.responses) == (group, [])


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (ApiKey.DESCRIBE_PRODUCERS, True),
        (ApiKey.DELETE_TOPICS, True),
        (ApiKey.ALTER_CONFIGS, True),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, True),
        (ApiKey.CREATE_PARTITIONS, False),
    ],
)
def test_some_refusals_have_their_code_in_words(key: ApiKey, words: bool) -> None:
    told = repr(_refused(key, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    assert ("Topic authorization failed." in told) is words
    assert "Topic authorization failed." not in repr(_refused(key, ErrorCode.INVALID_TOPIC_EXCEPTION))


@pytest.mark.parametrize("key", _KEYS.values(), ids=_KEYS)
def test_no_refusal_has_an_empty_message(key: ApiKey) -> None:
    """A Java client shows such a message instead of what the code means."""
    for part in _refused_parts(_refused(key, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)):
        assert getattr(part, "error_message", None) != ""


def _refused_parts(value: Any) -> Iterator[Any]:
    """The structs of a response that have an error code."""
    if isinstance(value, list | tuple):
        for each in value:
            yield from _refused_parts(each)
    elif value is not None and not isinstance(value, str | bytes | int | float):
        if getattr(value, "error_code", 0):
            yield value
        for field in fields(type(value)):
            if field.struct is not None:
                yield from _refused_parts(getattr(value, field.name))


@pytest.mark.parametrize("listener", ["PLAINTEXT", "CONTROLLER"])
def test_a_controllers_levels_are_the_nodes_own_to_set(listener: str) -> None:
    """As in Apache Kafka: to set levels of a broker takes AlterConfigs, and those of a controller ClusterAction."""
    for key, word in ((ApiKey.INCREMENTAL_ALTER_CONFIGS, "ALTER"), (ApiKey.DESCRIBE_CONFIGS, "DESCRIBE")):
        scene = Scene(key, None)
        scene.call.connection.listener_name = listener
        scene.request.resources[0].resource_type, scene.request.resources[1].resource_type = 8, 4
        scene.ask()
        needed = ["CLUSTER_ACTION CLUSTER"] if (listener, word) == ("CONTROLLER", "ALTER") else []
        assert scene.authorizer.questions == [*needed, f"{word}_CONFIGS CLUSTER"]


@pytest.mark.parametrize("listener", ["PLAINTEXT", "CONTROLLER"])
def test_any_client_sees_the_brokers_and_an_administrator_the_controllers(listener: str) -> None:
    scene = Scene(ApiKey.DESCRIBE_CLUSTER, None, "ALTER CLUSTER")
    scene.call.connection.listener_name = listener
    scene.request.include_cluster_authorized_operations = False
    if listener == "PLAINTEXT":
        assert scene.ask() is scene.response
        assert not scene.authorizer.questions
    else:
        with pytest.raises(KafkaError) as refused:
            scene.ask()
        assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert not scene.passed
