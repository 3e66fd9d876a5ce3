"""Forwards metrics that clients push (KIP-714) as OTLP over HTTP: `client.metrics.otlp.url`.

A push is OpenTelemetry's MetricsData, whose bytes are also those of an ExportMetricsServiceRequest. Each of its
resources gets the attributes `client_id`, `client_instance_id`, `client_software_name` and `client_software_version`,
because clients do not identify themselves in their pushes. The thread that sends also parses and encodes.
"""

from __future__ import annotations

from ottla.broker.limits.telemetry import ClientMetrics
from ottla.broker.observe.otlp import with_attributes
from ottla.broker.observe.otlp_sender import OtlpSender
from ottla.kernel.ids import uuid_text
from ottla.settings.server.own import OwnSettings

_TEXT_MAX = 80


class OtlpExport(OtlpSender[ClientMetrics]):
    """Forwards a node's client metrics to a receiver."""

    setting = OwnSettings.client_metrics_otlp_url.name
    path = "/v1/metrics"
    items = "client metrics"
    metric = "ottla_client_metrics_otlp"
    counted = "Pushes of clients"

    def take(self, pushed: ClientMetrics) -> None:
        """Queue a client's push without waiting."""
        self.put(pushed, len(pushed.data))

    def body(self, taken: list[ClientMetrics]) -> bytes:
        """A push with the client's attributes in its resources. NotOtlp."""
        (pushed,) = taken
        name, version = pushed.client.software
        return with_attributes(
            pushed.data,
            {
                "client_id": pushed.client.client_id[:_TEXT_MAX],
                "client_instance_id": uuid_text(pushed.instance_id),
                "client_software_name": name[:_TEXT_MAX],
                "client_software_version": version[:_TEXT_MAX],
            },
        )
