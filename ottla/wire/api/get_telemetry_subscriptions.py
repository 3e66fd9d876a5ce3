"""GetTelemetrySubscriptions (key 71): the metrics that a client should push (KIP-714)."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Boolean, Int8, Int16, Int32, String, Uuid


@wire(versions="0", flexible="0+")
class GetTelemetrySubscriptionsRequest:
    client_instance_id: Uuid = on("0+", default=NO_UUID)


@wire(versions="0", flexible="0+")
class GetTelemetrySubscriptionsResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    client_instance_id: Uuid = on("0+", default=NO_UUID)
    subscription_id: Int32 = on("0+", default=0)
    accepted_compression_types: list[Int8] = on("0+", factory=list)
    push_interval_ms: Int32 = on("0+", default=0)
    telemetry_max_bytes: Int32 = on("0+", default=0)
    delta_temporality: Boolean = on("0+", default=False)
    requested_metrics: list[String] = on("0+", factory=list)
