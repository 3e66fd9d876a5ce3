"""Controller requests on controllers' listeners: from brokers, and from clients directly or through a broker.

A broker forwards its clients' requests in an Envelope (key 58) that identifies the client; the response travels back in
an envelope. NOT_CONTROLLER is an error of the envelope itself, also where DescribeQuorum says NOT_LEADER_OR_FOLLOWER:
an Apache broker asks the same node until an envelope is refused.

This node's controller decides, and the response leaves once the decision is committed. A node that is not the active
controller answers NOT_CONTROLLER, and the broker looks for the node that is.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.call.handler import Call, handles
from ottla.broker.call.reply import Later
from ottla.broker.controllers import envelope
from ottla.broker.handlers import config, controller
from ottla.controller.config import DirectChange
from ottla.controller.decision import unlimited
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.metadata.image import BROKER_LOGGER
from ottla.wire.api import CONTROLLER, ApiKey
from ottla.wire.api.alter_configs import AlterConfigsRequest
from ottla.wire.api.describe_quorum import DescribeQuorumResponse
from ottla.wire.api.envelope import EnvelopeRequest
from ottla.wire.api.incremental_alter_configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from ottla.wire.compile import decoder
from ottla.wire.type import Malformed


@handles(ApiKey.CREATE_TOPICS, error_response=controller.creation_error_response, on=CONTROLLER)
@handles(ApiKey.DELETE_TOPICS, error_response=controller.deletion_error_response, on=CONTROLLER)
@handles(ApiKey.CREATE_PARTITIONS, error_response=controller.growth_error_response, on=CONTROLLER)
@handles(ApiKey.ALTER_CLIENT_QUOTAS, error_response=controller.quotas_error_response, on=CONTROLLER)
@handles(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, error_response=controller.credentials_error_response, on=CONTROLLER)
@handles(ApiKey.UNREGISTER_BROKER, on=CONTROLLER)
@handles(ApiKey.ELECT_LEADERS, error_response=controller.election_error_response, on=CONTROLLER)
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
    """Pass the request to this node's controller, and answer once its records are committed."""
    controller.check_changes(call, request)
    later = Later()
    mutations = controller.mutations_of(call, request)

    def committed(response: Any) -> None:
        if mutations is not None and not isinstance(response, KafkaError):
            response.throttle_time_ms = mutations.throttle_ms
        later.resolve(response)

    call.node.quorum.ask(request, committed, call.version, unlimited if mutations is None else mutations.charge)
    return later


@handles(ApiKey.ALTER_CONFIGS, error_response=controller.change_error_response, on=CONTROLLER)
@handles(ApiKey.INCREMENTAL_ALTER_CONFIGS, error_response=config.change_error_response, on=CONTROLLER)
def change_at_controller(call: Call, request: Any) -> Later:
    """Change this process's loggers here, and have the controller decide on all other configs."""
    controller.check_changes(call, request)
    loggers = [each for each in request.resources if each.resource_type == BROKER_LOGGER]
    if not loggers or isinstance(request, AlterConfigsRequest):
        return _decide_change(call, request)
    others = [each for each in request.resources if each.resource_type != BROKER_LOGGER]
    later = Later()

    def committed(response: Any) -> None:
        if not isinstance(response, KafkaError):
            response.responses += config.change_loggers(call, loggers, validate_only=request.validate_only)
        later.resolve(response)

    if others:
        rest = IncrementalAlterConfigsRequest(resources=others, validate_only=request.validate_only)
        _decide_change(call, rest).then(committed)
    else:
        committed(IncrementalAlterConfigsResponse())
    return later


def _decide_change(call: Call, request: Any) -> Later:
    return decide(call, request if isinstance(call, ForwardedCall) else DirectChange(request))


class ForwardedCall(Call):
    """A client's request that arrived in a broker's envelope."""

    __slots__ = ("_origin",)
    is_forwarded = True

    def __init__(self, call: Call, origin: envelope.Requester) -> None:
        super().__init__(call.node, call.connection, origin.version, origin.correlation_id, origin.client_id)
        self._origin = origin

    @property
    def client_address(self) -> str:
        return self._origin.address

    @property
    def principal(self) -> str:
        return self._origin.principal


@handles(ApiKey.ENVELOPE, on=CONTROLLER)
def open_envelope(call: Call, request: EnvelopeRequest) -> Later:
    """Handle the enclosed request as if its client had sent it to this node (KIP-590)."""
    api, origin, position = envelope.unwrap(request)
    node, later = call.node, Later()
    handlers = node.controller_dispatch.handlers
    if api.key not in handlers or origin.version not in api.offered(
        unstable=node.settings.unstable_api_versions_enable
    ):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{api.name} v{origin.version} is not served here")
    handler = node.controller_dispatch.guarded(handlers[api.key])
    try:
        inner, _ = decoder(api.request, origin.version)(memoryview(bytes(request.request_data)), position)
    except Malformed as error:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, f"the request in the envelope cannot be read: {error}"
        ) from None

    def answered(reply: Any) -> None:
        if isinstance(reply, DescribeQuorumResponse) and _is_of_no_leader(reply):
            reply = KafkaError(ErrorCode.NOT_CONTROLLER)
        if isinstance(reply, KafkaError):
            if reply.code is ErrorCode.NOT_CONTROLLER:
                return later.resolve(reply)
            reply = handler.error_response(inner, origin.version, reply)
        return later.resolve(envelope.seal(api, origin, reply))

    try:
        reply = handler.function(ForwardedCall(call, origin), inner)
    except KafkaError as error:
        reply = error
    if isinstance(reply, Later):
        reply.then(answered)
    else:
        answered(reply)
    return later


def _is_of_no_leader(response: DescribeQuorumResponse) -> bool:
    not_leader = ErrorCode.NOT_LEADER_OR_FOLLOWER
    return any(partition.error_code == not_leader for topic in response.topics for partition in topic.partitions)
