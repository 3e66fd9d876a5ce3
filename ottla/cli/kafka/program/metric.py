"""The metrics of a client, as Kafka's perf tools print them with --print-metrics."""

from __future__ import annotations

from typing import Any


def print_metrics(group: str, client_id: str, metrics: Any) -> None:
    """Print a line per metric, sorted by name: `group:name:{client-id=...}` and the value."""
    from ottla.client.connection.metric import named

    shown = {f"{group}:{name}:{{client-id={client_id}}}": value for name, value in named(metrics).items()}
    width = max(map(len, shown))
    print(f"\n{'Metric Name':<{width}}   Value")
    for name in sorted(shown):
        value = shown[name]
        text = ("NaN" if value != value else f"{value:.3f}") if isinstance(value, float) else str(value)
        print(f"{name:<{width}} : {text}")
