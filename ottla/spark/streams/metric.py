"""The workers' metrics in Prometheus' format.

A task's counters start at 0 when a worker opens the task, like those of a restarted process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.kernel.exposition import family, labels

#: Name in a worker's report to (name, type, help).
_FAMILIES = {
    "processed": ("records_processed_total", "counter", "Input records that were processed."),
    "dropped": (
        "records_dropped_total",
        "counter",
        "Records dropped: null keys, late records, skipped errors.",
    ),
    "process_s": ("process_seconds_total", "counter", "Time in the operators and functions of the program."),
    "commits": ("commits_total", "counter", "Commits of outputs, state and offsets."),
    "commit_s": ("commit_seconds_total", "counter", "Time in commits."),
    "lag": ("lag_records", "gauge", "Input records that are not yet processed."),
    "stream_time_s": ("stream_time_seconds", "gauge", "The newest timestamp that the task has seen, since 1970."),
    "latency_s": ("latency_seconds", "gauge", "Age of the newest record when it was last processed."),
}
_STORE = ("ottla_streams_store_entries", "gauge", "Entries of a state store.")
_PREFIX = "ottla_streams_"


def prometheus(application_id: str, state: str, tasks: Mapping[str, Mapping[str, Any]]) -> str:
    """The metrics of all tasks in Prometheus' text format (version 0.0.4)."""
    running = (labels(application_id=application_id), int(state == "RUNNING"))
    lines = family(_PREFIX + "running", "gauge", "1 while all tasks are open.", [running])
    for field, (name, kind, text) in _FAMILIES.items():
        samples = [
            (labels(application_id=application_id, task=task), report[field])
            for task, report in sorted(tasks.items())
            if report.get(field) is not None
        ]
        lines += family(_PREFIX + name, kind, text, samples)
    stores = [
        (labels(application_id=application_id, task=task, store=store), count)
        for task, report in sorted(tasks.items())
        for store, count in sorted(report.get("stores", {}).items())
    ]
    return "\n".join((*lines, *family(*_STORE, stores))) + "\n"
