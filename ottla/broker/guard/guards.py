"""The authorization that each API requires.

Rules:
- `GUARDS` has an entry for every API that a node serves. An API without an entry is refused.
- A request about one resource is one question (`whole`); about several, one question for each (`parts`). Guards that
  hide parts of a response are in `topics` and `groups`.

The checks are those of Kafka's KafkaApis, ControllerApis and AclApis.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ottla.broker.call.handler import Call, Handler
from ottla.broker.call.reply import Reply
from ottla.broker.coordinators.group_protocol import CONSUMER, SHARE, STREAMS
from ottla.broker.guard import groups, topics, transactions
from ottla.broker.guard.authorizer import Authorizer
from ottla.broker.guard.parts import Guard, both, cluster, of_kind, parts, unchecked, whole
from ottla.broker.guard.refusal import error_response_of
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.security.acl import AclOperation, AclResource
from ottla.wire.api import ApiKey


def guarded(authorizer: Authorizer, handler: Handler) -> Handler:
    """The handler behind its guard."""
    guard = GUARDS.get(handler.api.key, _refused)
    handler = Handler(handler.api, handler.function, error_response_of(handler))
    return Handler(handler.api, partial(guard, authorizer, handler), handler.error_response)


def _refused(authorizer: Authorizer, handler: Handler, call: Call, request: Any) -> Reply:
    raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


_alter, _describe = cluster(AclOperation.ALTER), cluster(AclOperation.DESCRIBE)
_act = cluster(AclOperation.CLUSTER_ACTION)
_in_group = whole(AclOperation.READ, AclResource.GROUP, "group_id")


def _topic_parts(operation: AclOperation, name: str, *, by_id: bool = False) -> Guard:
    return parts(operation, AclResource.TOPIC, "topics", name, "topics", by_id=by_id)


GUARDS: dict[int, Guard] = {
    ApiKey.API_VERSIONS: unchecked,
    ApiKey.SASL_HANDSHAKE: unchecked,
    ApiKey.SASL_AUTHENTICATE: unchecked,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: unchecked,
    ApiKey.PUSH_TELEMETRY: unchecked,
    # The handlers check these themselves.
    ApiKey.CREATE_DELEGATION_TOKEN: unchecked,
    ApiKey.RENEW_DELEGATION_TOKEN: unchecked,
    ApiKey.EXPIRE_DELEGATION_TOKEN: unchecked,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: unchecked,
    # ---- topics and records
    ApiKey.PRODUCE: topics.produce,
    ApiKey.FETCH: topics.fetch,
    ApiKey.METADATA: topics.metadata,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: topics.describe_topic_partitions,
    ApiKey.LIST_OFFSETS: _topic_parts(AclOperation.DESCRIBE, "name"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: topics.leader_epochs,
    ApiKey.DELETE_RECORDS: _topic_parts(AclOperation.DELETE, "name"),
    ApiKey.DESCRIBE_PRODUCERS: _topic_parts(AclOperation.READ, "name"),
    ApiKey.CREATE_TOPICS: topics.create_topics,
    ApiKey.DELETE_TOPICS: topics.delete_topics,
    ApiKey.CREATE_PARTITIONS: parts(AclOperation.ALTER, AclResource.TOPIC, "topics", "name", "results", unique=True),
    ApiKey.DESCRIBE_CONFIGS: topics.describe_configs,
    ApiKey.ALTER_CONFIGS: topics.alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: topics.alter_configs,
    # ---- groups
    ApiKey.FIND_COORDINATOR: groups.find_coordinator,
    ApiKey.JOIN_GROUP: _in_group,
    ApiKey.SYNC_GROUP: groups.sync,
    ApiKey.HEARTBEAT: _in_group,
    ApiKey.LEAVE_GROUP: _in_group,
    ApiKey.OFFSET_COMMIT: both(_in_group, _topic_parts(AclOperation.READ, "name", by_id=True)),
    ApiKey.OFFSET_FETCH: groups.offset_fetch,
    ApiKey.OFFSET_DELETE: both(
        whole(AclOperation.DELETE, AclResource.GROUP, "group_id"),
        groups.changed_offsets("name", "topics", groups.refused_deletion),
    ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: of_kind(CONSUMER, both(_in_group, groups.subscribe)),
    ApiKey.SHARE_GROUP_HEARTBEAT: of_kind(SHARE, both(_in_group, groups.subscribe)),
    ApiKey.STREAMS_GROUP_HEARTBEAT: of_kind(STREAMS, both(_in_group, groups.streams_heartbeat)),
    ApiKey.DESCRIBE_GROUPS: groups.describe("groups"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: of_kind(CONSUMER, groups.describe("group_ids")),
    ApiKey.SHARE_GROUP_DESCRIBE: of_kind(SHARE, groups.describe("group_ids")),
    ApiKey.STREAMS_GROUP_DESCRIBE: of_kind(STREAMS, groups.describe("group_ids")),
    ApiKey.DELETE_GROUPS: parts(AclOperation.DELETE, AclResource.GROUP, "groups_names", None, "results"),
    ApiKey.LIST_GROUPS: groups.list_groups,
    ApiKey.SHARE_FETCH: of_kind(SHARE, _in_group),
    ApiKey.SHARE_ACKNOWLEDGE: of_kind(SHARE, _in_group),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: of_kind(
        SHARE,
        both(_in_group, groups.changed_offsets("topic_name", "responses", groups.refused_share_change)),
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: of_kind(
        SHARE,
        both(
            whole(AclOperation.DELETE, AclResource.GROUP, "group_id"),
            groups.changed_offsets("topic_name", "responses", groups.refused_share_deletion),
        ),
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: of_kind(SHARE, groups.share_offsets),
    # ---- transactions
    ApiKey.INIT_PRODUCER_ID: transactions.init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: transactions.add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: both(
        whole(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, "transactional_id"), _in_group
    ),
    ApiKey.END_TXN: whole(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, "transactional_id"),
    ApiKey.TXN_OFFSET_COMMIT: both(
        whole(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, "transactional_id"),
        both(_in_group, _topic_parts(AclOperation.READ, "name", by_id=True)),
    ),
    ApiKey.WRITE_TXN_MARKERS: transactions.write_markers,
    ApiKey.DESCRIBE_TRANSACTIONS: transactions.describe,
    ApiKey.LIST_TRANSACTIONS: transactions.list_transactions,
    # ---- the cluster
    ApiKey.DESCRIBE_CLUSTER: topics.describe_cluster,
    ApiKey.DESCRIBE_QUORUM: _describe,
    ApiKey.ADD_RAFT_VOTER: _alter,
    ApiKey.REMOVE_RAFT_VOTER: _alter,
    ApiKey.DESCRIBE_LOG_DIRS: _describe,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _alter,
    ApiKey.LIST_CONFIG_RESOURCES: cluster(AclOperation.DESCRIBE_CONFIGS),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: cluster(AclOperation.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CLIENT_QUOTAS: cluster(AclOperation.ALTER_CONFIGS),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _describe,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter,
    ApiKey.DESCRIBE_ACLS: _describe,
    ApiKey.CREATE_ACLS: _alter,
    ApiKey.DELETE_ACLS: _alter,
    ApiKey.UNREGISTER_BROKER: _alter,
    ApiKey.ELECT_LEADERS: _alter,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _alter,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _describe,
    ApiKey.UPDATE_FEATURES: _alter,
    # ---- between nodes
    **dict.fromkeys(
        (
            ApiKey.INITIALIZE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE,
            ApiKey.WRITE_SHARE_GROUP_STATE,
            ApiKey.DELETE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
            ApiKey.BROKER_REGISTRATION,
            ApiKey.BROKER_HEARTBEAT,
            ApiKey.CONTROLLER_REGISTRATION,
            ApiKey.ALTER_PARTITION,
            ApiKey.ALLOCATE_PRODUCER_IDS,
            ApiKey.ASSIGN_REPLICAS_TO_DIRS,
            ApiKey.ENVELOPE,
            ApiKey.FETCH_SNAPSHOT,
            ApiKey.VOTE,
            ApiKey.BEGIN_QUORUM_EPOCH,
            ApiKey.END_QUORUM_EPOCH,
            ApiKey.UPDATE_RAFT_VOTER,
        ),
        _act,
    ),
}
