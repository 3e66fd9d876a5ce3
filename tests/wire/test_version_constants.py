"""The versions from which a handler does something else: those of the fields that it is about, and Apache's others.

A client sends the newest version that both sides know, so that most tests never see the version just below.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.wire.api import API, ApiKey
from ottla.wire.schema import fields
from tests.wire.value import classes

ROOT = Path(__file__).parents[2]
#: Module: constant: its version, and the field that this version has first ("-field": that it has no more), or why.
TABLE = """
broker/call/fetch_data BY_ID_FROM 13 FetchRequest.topics.topic_id
broker/coordinators/held_produce _IMPLICIT_FROM 12 the transaction protocol without AddPartitionsToTxn (KIP-890)
broker/dispatch/sign_in _NAMED_FROM 3 ApiVersionsRequest.client_software_name
broker/guard/groups _BATCHED_FROM 4 FindCoordinatorRequest.coordinator_keys
broker/guard/groups _MANY_GROUPS_FROM 8 OffsetFetchRequest.groups
broker/guard/groups _PROTOCOL_FROM 5 SyncGroupRequest.protocol_type
broker/guard/groups _SHARE_FROM 6 FindCoordinator takes keys of share groups (KIP-932)
broker/guard/refusal _NO_PROTOCOL_FROM 7 JoinGroupResponse.protocol_type
broker/guard/topics _BY_ID_FROM 12 a Metadata request by topic ids; Apache's brokers refuse them in 10 and 11
broker/guard/topics _PRODUCE_BY_ID_FROM 13 ProduceRequest.topic_data.topic_id
broker/guard/transactions _BATCHED_FROM 4 AddPartitionsToTxnRequest.transactions
broker/handlers/api_versions _NAMED_FROM 3 ApiVersionsRequest.client_software_name
broker/handlers/api_versions _ZERO_FEATURES_FROM 4 KAFKA-17011
broker/handlers/controller _ELECTION_ERROR_FROM 1 ElectLeadersResponse.error_code
broker/handlers/fetch _FROM_FOLLOWERS_SINCE 11 FetchRequest.rack_id
broker/handlers/fetch _STORAGE_ERROR_SINCE 6 KAFKA_STORAGE_ERROR (KIP-112)
broker/handlers/group _BATCHED_FROM 4 FindCoordinatorRequest.coordinator_keys
broker/handlers/group _MANY_GROUPS_FROM 8 OffsetFetchRequest.groups
broker/handlers/group _SHARE_FROM 6 FindCoordinator takes keys of share groups (KIP-932)
broker/handlers/list_offsets _EPOCH_FROM 4 ListOffsetsResponse.topics.partitions.leader_epoch
broker/handlers/list_offsets _NOT_AVAILABLE_FROM 5 OFFSET_NOT_AVAILABLE (KIP-207)
broker/handlers/metadata _BY_ID_FROM 12 a Metadata request by topic ids; Apache's brokers refuse them in 10 and 11
broker/handlers/metadata _ID_FROM 10 MetadataRequest.topics.topic_id
broker/handlers/metadata _LISTENER_ERROR_FROM 6 LISTENER_NOT_FOUND
broker/handlers/produce _ABORTABLE_SINCE 11 TRANSACTION_ABORTABLE (KIP-890)
broker/handlers/produce _BY_ID_FROM 13 ProduceRequest.topic_data.topic_id
broker/handlers/produce _IMPLICIT_FROM 12 the transaction protocol without AddPartitionsToTxn (KIP-890)
broker/handlers/produce _ZSTD_FROM 7 zstd (KIP-110)
broker/handlers/producer_id _FENCED_SINCE 4 PRODUCER_FENCED of InitProducerId (KIP-588)
broker/handlers/quorum _DIRECTORIES_FROM 2 DescribeQuorumResponse.topics.partitions.current_voters.replica_directory_id
broker/handlers/share_acknowledge _RENEW_FROM 2 ShareAcknowledgeRequest.is_renew_ack
broker/handlers/share_fetch _RENEW_FROM 2 ShareFetchRequest.is_renew_ack
broker/handlers/transaction _BATCHED_FROM 4 AddPartitionsToTxnRequest.transactions
broker/handlers/transaction _FENCED_SINCE 2 PRODUCER_FENCED of the other requests (KIP-588)
broker/handlers/transaction_offsets _IMPLICIT_FROM 5 EndTxnResponse.producer_id
broker/handlers/transaction_offsets _OFFSETS_ABORTABLE_SINCE 4 TRANSACTION_ABORTABLE of TxnOffsetCommit (KIP-890)
broker/handlers/transaction_offsets _OFFSETS_BY_ID_FROM 6 TxnOffsetCommitRequest.topics.topic_id
broker/observe/requests _BY_ID_SINCE 13 FetchRequest.topics.topic_id
controller/alter_partition _EPOCHS_FROM 3 AlterPartitionRequest.topics.partitions.new_isr_with_epochs
controller/broker _CLEAN_STOP_FROM 3 BrokerRegistrationRequest.previous_broker_epoch
controller/delegation_token REQUESTER_FROM 3 DescribeDelegationTokenResponse.tokens.token_requester_principal_name
controller/delete_topics _DISABLED_FROM 3 TOPIC_DELETION_DISABLED (KIP-322)
controller/partition_change _NO_EPOCH_ON_SHRINK_FROM 12 metadata.version 3.6-IV0 (KAFKA-15021)
group/classic/consumer_members _PROMISES_FROM 4 MEMBER_ID_REQUIRED (KIP-394)
group/classic/join _PROMISES_FROM 4 MEMBER_ID_REQUIRED (KIP-394)
group/classic/join _SKIP_ASSIGNMENT_FROM 9 JoinGroupResponse.skip_assignment
group/classic/sync _LEAVE_MANY_FROM 3 LeaveGroupRequest.members
group/classic/sync _LEAVE_MANY_FROM 3 -LeaveGroupRequest.member_id
group/classic/sync _PROTOCOL_NAMED_FROM 5 SyncGroupRequest.protocol_name
group/consumer/heartbeat _MEMBER_ID_FROM 1 the client makes its member id (KIP-1082)
group/description _NOT_FOUND_FROM 6 DescribeGroupsResponse.groups.error_message
group/failure _NULL_PROTOCOL_FROM 7 JoinGroupResponse.protocol_type
group/offsets/commit _MEMBER_EPOCHS_FROM 9 members of consumer groups commit (KIP-848)
group/offsets/plan _TOPIC_IDS_FROM 10 OffsetCommitRequest.topics.topic_id
group/offsets/plan _TXN_TOPIC_IDS_FROM 6 TxnOffsetCommitRequest.topics.topic_id
group/offsets/fetch GROUPS_FROM 8 OffsetFetchRequest.groups
group/offsets/fetch _GROUP_ERROR_FROM 2 OffsetFetchResponse.error_code
group/offsets/fetch _TOPIC_IDS_FROM 10 OffsetFetchRequest.groups.topics.topic_id
metadata/feature CONTROLLER_REGISTRATIONS_FROM 15 metadata.version 3.7-IV0
metadata/feature CORDONED_DIRECTORIES_FROM 30 metadata.version 4.3-IV0
metadata/feature DIRECTORIES_FROM 17 metadata.version 3.7-IV2
metadata/feature ELR_FROM 23 metadata.version 4.0-IV1
metadata/feature SCRAM_FROM 11 metadata.version 3.5-IV2
metadata/feature TOKENS_FROM 14 metadata.version 3.6-IV2
metadata/feature TRANSACTIONS_FROM 13 metadata.version 3.6-IV1
metadata/feature _KRAFT_VERSION_FROM 21 metadata.version 3.9-IV0
metadata/record_version _ZK_MIGRATION_FROM 8 metadata.version 3.4-IV0
raft/electing _ENDPOINTS_FROM 1 VoteResponse.node_endpoints
raft/message _ENDPOINTS_FROM 1 VoteResponse.node_endpoints
raft/message _FETCH_ENDPOINTS_FROM 17 FetchRequest.topics.partitions.replica_directory_id
raft/message _FETCH_LEADER_FROM 12 FetchResponse.responses.partitions.current_leader
txn/coordinator _EPOCH_BUMPS_FROM 5 EndTxnResponse.producer_epoch
txn/coordinator _FENCED_SINCE 2 PRODUCER_FENCED (KIP-588)
"""
#: Numbers of topics and partitions, not of versions.
_AMOUNTS = {"_STEPS_FROM", "_DEFERRED_FROM"}
_ROWS = [line.split(" ", 3) for line in TABLE.strip().splitlines()]


def _declared() -> Iterator[tuple[str, str, int]]:
    """(module, constant, number): all constants whose name says that something begins at a version."""
    for path in sorted((ROOT / "ottla").rglob("*.py")):
        module = path.relative_to(ROOT / "ottla").with_suffix("").as_posix()
        if module.startswith(("cli/", "client/")):
            continue
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Constant):
                continue
            (target,), number = node.targets, node.value.value
            if (
                isinstance(number, int)
                and isinstance(target, ast.Name)
                and re.search("(^|_)(FROM|SINCE)$", target.id)
                and target.id not in _AMOUNTS
            ):
                yield module, target.id, number


def test_each_constant_has_the_version_of_the_table() -> None:
    assert sorted(set(_declared())) == sorted({(module, name, int(number)) for module, name, number, _ in _ROWS})


@pytest.mark.parametrize("row", [row for row in _ROWS if re.fullmatch(r"-?\w+\.[\w.]+", row[3])], ids=" ".join)
def test_a_field_begins_or_ends_with_that_version(row: list[str]) -> None:
    number, place = int(row[2]), row[3]
    message, *names = place.removeprefix("-").split(".")
    cls = classes()[message]
    versions = range(0)
    for name in names:
        (field,) = [each for each in fields(cls) if each.name == name]
        versions = field.versions
        if field.struct is not None:
            cls = field.struct
    assert (versions.stop if place.startswith("-") else versions.start) == number


def test_a_level_of_metadata_is_the_release_of_the_table() -> None:
    from ottla.metadata.feature import release_level

    for _, _, number, words in _ROWS:
        if words.startswith("metadata.version "):
            assert release_level(words.split()[1]) == int(number)


def test_mutations_are_refused_with_their_own_code_where_clients_know_it() -> None:
    """KIP-599 gave CreateTopics 6, DeleteTopics 5 and CreatePartitions 3 no fields: a version of its own says it."""
    from ottla.broker.handlers.controller import _STRICT_FROM

    assert _STRICT_FROM == {"CreateTopicsRequest": 6, "DeleteTopicsRequest": 5, "CreatePartitionsRequest": 3}
    for key in (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS):
        assert _STRICT_FROM[API[key].request.__name__] in API[key].versions
