"""Request handlers, one module per API family, and the tables of the APIs that each kind of listener serves.

A handler is a plain function of (call, request). Its body runs to the end before the loop looks at the next request. It
returns the response, a `Later` that will hold the response, or NO_REPLY.

A module is imported on the first request of one of its APIs, because a fresh node needs few of them.
"""

from collections.abc import Iterable, Mapping

from ottla.kernel.lazy import LazyModule
from ottla.wire.api import ApiKey

_APIS = {
    "api_versions": (ApiKey.API_VERSIONS,),
    "cluster": (ApiKey.DESCRIBE_CLUSTER,),
    "config": (
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.LIST_CONFIG_RESOURCES,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ),
    "controller": (
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.UPDATE_FEATURES,
    ),
    "delete_records": (ApiKey.DELETE_RECORDS,),
    "fetch": (ApiKey.FETCH,),
    "group": (
        ApiKey.FIND_COORDINATOR,
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_DELETE,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        ApiKey.OFFSET_FETCH,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.STREAMS_GROUP_DESCRIBE,
        ApiKey.DELETE_GROUPS,
        ApiKey.LIST_GROUPS,
    ),
    "list_offsets": (ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH),
    "log_dir": (
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.DESCRIBE_LOG_DIRS,
    ),
    "metadata": (
        ApiKey.METADATA,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ),
    "produce": (ApiKey.PRODUCE,),
    "producer_id": (ApiKey.INIT_PRODUCER_ID,),
    "quorum": (
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
    ),
    "security": (
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ),
    "share_acknowledge": (ApiKey.SHARE_ACKNOWLEDGE,),
    "share_fetch": (ApiKey.SHARE_FETCH,),
    "share_offset": (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,),
    "share_state": (
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    ),
    "streams_group": (ApiKey.STREAMS_GROUP_HEARTBEAT,),
    "telemetry": (
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
    ),
    "transaction": (
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.WRITE_TXN_MARKERS,
    ),
    "transaction_offsets": (ApiKey.TXN_OFFSET_COMMIT,),
    "transaction_view": (
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.DESCRIBE_PRODUCERS,
    ),
}

#: The APIs that Kafka's definitions put on controllers' listeners.
_CONTROLLER_APIS = {
    "active_controller": (
        *_APIS["controller"],
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.ENVELOPE,
    ),
    "api_versions": _APIS["api_versions"],
    "cluster": (ApiKey.DESCRIBE_CLUSTER,),
    "config": (ApiKey.DESCRIBE_CONFIGS,),
    "quorum": (
        *_APIS["quorum"],
        ApiKey.FETCH,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.UPDATE_RAFT_VOTER,
    ),
    "security": _APIS["security"],
}


def _modules(apis: Mapping[str, Iterable[int]]) -> dict[int, LazyModule]:
    modules: dict[int, LazyModule] = {}
    for name, keys in apis.items():
        modules |= dict.fromkeys(keys, LazyModule(f"{__name__}.{name}"))
    return modules


#: API -> the module that registers its handler, for brokers' and for controllers' listeners.
MODULES = _modules(_APIS)
CONTROLLER_MODULES = _modules(_CONTROLLER_APIS)
