"""What listeners for controllers serve of the controller: requests of brokers, and clients' own or through brokers.

The controller of this node decides, and the answer leaves when it is committed. A node that is not the active
controller answers NOT_CONTROLLER: brokers then find out which one is.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.call.handler import Call, handles
from ottla.broker.call.reply import Later
from ottla.broker.handlers import config, controller
from ottla.controller.decision import unlimited
from ottla.kernel.error import KafkaError
from ottla.wire.api import CONTROLLER, ApiKey


@handles(ApiKey.CREATE_TOPICS, refuse=controller.refuse_creation, on=CONTROLLER)
@handles(ApiKey.DELETE_TOPICS, refuse=controller.refuse_deletion, on=CONTROLLER)
@handles(ApiKey.CREATE_PARTITIONS, refuse=controller.refuse_growth, on=CONTROLLER)
@handles(ApiKey.ALTER_CONFIGS, refuse=controller.refuse_change, on=CONTROLLER)
@handles(ApiKey.INCREMENTAL_ALTER_CONFIGS, refuse=config.refuse_change, on=CONTROLLER)
@handles(ApiKey.ALTER_CLIENT_QUOTAS, refuse=controller.refuse_quotas, on=CONTROLLER)
@handles(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, refuse=controller.refuse_credentials, on=CONTROLLER)
@handles(ApiKey.UNREGISTER_BROKER, on=CONTROLLER)
@handles(ApiKey.ELECT_LEADERS, refuse=controller.refuse_election, on=CONTROLLER)
@handles(ApiKey.ALTER_PARTITION_REASSIGNMENTS, on=CONTROLLER)
@handles(ApiKey.LIST_PARTITION_REASSIGNMENTS, on=CONTROLLER)
@handles(ApiKey.UPDATE_FEATURES, on=CONTROLLER)
@handles(ApiKey.BROKER_REGISTRATION, on=CONTROLLER)
@handles(ApiKey.BROKER_HEARTBEAT, on=CONTROLLER)
@handles(ApiKey.CONTROLLER_REGISTRATION, on=CONTROLLER)
@handles(ApiKey.ALTER_PARTITION, on=CONTROLLER)
@handles(ApiKey.ALLOCATE_PRODUCER_IDS, on=CONTROLLER)
@handles(ApiKey.ASSIGN_REPLICAS_TO_DIRS, on=CONTROLLER)
def decide(call: Call, request: Any) -> Later:
    """Let this node's controller decide, write what it decided, answer when that is committed."""
    later = Later()
    mutations = controller.mutations_of(call, request)

    def committed(response: Any) -> None:
        if mutations is not None and not isinstance(response, KafkaError):
            response.throttle_time_ms = mutations.throttle_ms
        later.resolve(response)

    call.node.quorum.ask(request, committed, call.version, unlimited if mutations is None else mutations.charge)
    return later
