"""DescribeCluster (key 60): the cluster's id, its brokers and its controller (KIP-700, KIP-919)."""

from __future__ import annotations

from ottla.broker.call.handler import Call, handles
from ottla.broker.handlers.metadata import CLUSTER_OPERATIONS
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.metadata.feature import CONTROLLER_REGISTRATIONS_FROM
from ottla.wire.api import CONTROLLER, ApiKey
from ottla.wire.api.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS, _CONTROLLERS = 1, 2


def _error_response(request: DescribeClusterRequest, _: int, error: KafkaError) -> DescribeClusterResponse:
    # Like Kafka, do not repeat the endpoint type of the request.
    return DescribeClusterResponse(error_code=error.code, error_message=error.message or None)


def _check_type(call: Call, wanted: int, here: int) -> None:
    names = {_BROKERS: "BROKER", _CONTROLLERS: "CONTROLLER"}
    if wanted not in names:
        raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {wanted}")
    if wanted != here:
        raise KafkaError(
            # A client of version 0 asks for brokers.
            ErrorCode.INVALID_REQUEST if call.version == 0 else ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            f"The request was sent to an endpoint of type {names[here]}, but we wanted an endpoint of type "
            f"{names[wanted]}",
        )


@handles(ApiKey.DESCRIBE_CLUSTER, error_response=_error_response)
def describe_cluster(call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """The brokers, at their addresses on the client's listener."""
    node = call.node
    _check_type(call, request.endpoint_type, _BROKERS)
    view = node.brokers_at(call.connection.listener_name)
    shown = view.nodes.values() if request.include_fenced_brokers else view.alive
    controller_id = view.any_alive_id(node.rng)
    response = DescribeClusterResponse(
        endpoint_type=_BROKERS,
        cluster_id=node.cluster_id,
        controller_id=controller_id if any(broker.node_id == controller_id for broker in shown) else -1,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack, is_fenced=broker.fenced
            )
            for broker in shown
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


@handles(ApiKey.DESCRIBE_CLUSTER, error_response=_error_response, on=CONTROLLER)
def describe_controllers(call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """The controllers registered with this listener, and the active one (KIP-919)."""
    node = call.node
    image, leader = node.quorum.image, node.quorum.leader
    if image.metadata_version < CONTROLLER_REGISTRATIONS_FROM:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "Direct-to-controller communication is not supported with the current MetadataVersion.",
        )
    _check_type(call, request.endpoint_type, _CONTROLLERS)
    shown = [
        DescribeClusterBroker(broker_id=controller_id, host=end_point.host, port=end_point.port, rack=None)
        for controller_id, controller in sorted(image.controllers.items())
        for end_point in controller.end_points
        if end_point.name == call.connection.listener_name
    ]
    leader_id = -1 if leader is None else leader.node_id
    response = DescribeClusterResponse(
        endpoint_type=_CONTROLLERS,
        cluster_id=node.cluster_id,
        controller_id=leader_id if any(each.broker_id == leader_id for each in shown) else -1,
        brokers=shown,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response
