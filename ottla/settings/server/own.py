"""Ottla's own server settings, which Apache Kafka does not declare. They are checked and shown like Kafka's.

Kafka accepts any undeclared name and hides its value, because it may be a plug-in's secret; these are not hidden.
"""

from __future__ import annotations

from ottla.kernel.validators import Between
from ottla.settings.schema import CLUSTER_WIDE, LOW, READ_ONLY, Settings, double, string

_DAY_MS = 24 * 3_600_000


class OwnSettings(Settings):
    """Declared for checks and documentation; a node reads the text where it needs it."""

    kind = "server setting"

    client_metrics_otlp_url = string(
        "client.metrics.otlp.url",
        None,
        "http(s)://HOST:PORT/v1/metrics of an OTLP receiver, to which a broker forwards clients' metrics (KIP-714).",
        None,
        LOW,
        READ_ONLY,
    )
    metrics_listener = string(
        "metrics.listener",
        None,
        "HOST:PORT where the node serves /metrics, /health and /ready over HTTP; disabled if not set.",
        None,
        LOW,
        READ_ONLY,
    )
    slow_request_log_ms = double(
        "slow.request.log.ms",
        -1.0,
        "Requests that take at least this many milliseconds are logged; -1 disables the log of slow requests.",
        Between(0, _DAY_MS, other=-1),
        LOW,
        CLUSTER_WIDE,
    )
    tracing_otlp_url = string(
        "tracing.otlp.url",
        None,
        "http(s)://HOST:PORT/v1/traces of an OTLP receiver, to which a broker sends spans of traced records.",
        None,
        LOW,
        READ_ONLY,
    )
