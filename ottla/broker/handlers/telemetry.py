"""GetTelemetrySubscriptions (key 71) and PushTelemetry (key 72): clients' metrics (KIP-714)."""

from __future__ import annotations

from ottla.broker.call.handler import Call, handles
from ottla.broker.limits.telemetry import ACCEPTED_COMPRESSION_TYPES, Client
from ottla.kernel.error import KafkaError
from ottla.kernel.ids import Uuid
from ottla.wire.api import ApiKey
from ottla.wire.api.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ottla.wire.api.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


def _error_response(
    request: GetTelemetrySubscriptionsRequest, _: int, error: KafkaError
) -> GetTelemetrySubscriptionsResponse:
    # Like Kafka, do not repeat the client's instance id.
    return GetTelemetrySubscriptionsResponse(error_code=error.code)


@handles(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, error_response=_error_response)
def get_subscriptions(call: Call, request: GetTelemetrySubscriptionsRequest) -> GetTelemetrySubscriptionsResponse:
    """The metrics that this client should push, and the interval."""
    node = call.node
    instance = node.telemetry.ask(
        call.connection, _client(call), Uuid(request.client_instance_id), node.clock.monotonic_ms()
    )
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance.instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=list(ACCEPTED_COMPRESSION_TYPES),
        push_interval_ms=instance.interval_ms,
        telemetry_max_bytes=node.settings.telemetry_max_bytes,
        delta_temporality=True,
        requested_metrics=list(instance.metrics),
    )


@handles(ApiKey.PUSH_TELEMETRY)
def push(call: Call, request: PushTelemetryRequest) -> PushTelemetryResponse:
    """Accept a client's metrics."""
    node = call.node
    node.telemetry.push(
        call.connection,
        _client(call),
        Uuid(request.client_instance_id),
        request.subscription_id,
        request.compression_type,
        bytes(request.metrics),
        terminating=request.terminating,
        bytes_max=node.settings.telemetry_max_bytes,
        now_ms=node.clock.monotonic_ms(),
    )
    return PushTelemetryResponse()


def _client(call: Call) -> Client:
    return Client(call.client_id, call.connection.client_software, call.connection.peer)
