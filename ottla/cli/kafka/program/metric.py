"""The figures of a client as Kafka's perf tools show them with --print-metrics."""

from __future__ import annotations

from typing import Any


def print_metrics(group: str, client_id: str, metrics: Any) -> None:
    """A line each, `group:name:{client-id=...}` and the value, by name."""
    from ottla.client.connection.metric import named

    shown = {f"{group}:{name}:{{client-id={client_id}}}": value for name, value in named(metrics).items()}
    width = max(map(len, shown))
    print(f"\n{'Metric Name':<{width}}   Value")
    for name in sorted(shown):
        value = shown[name]
        text = ("NaN" if value != value else f"{value:.3f}") if isinstance(value, float) else str(value)
        print(f"{name:<{width}} : {text}")
