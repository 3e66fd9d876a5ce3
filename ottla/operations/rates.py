"""The activity of a cluster: records and bytes a second by topic, and the lag of groups.

Rules:
- A rate is the difference of two samples. Records come from end offsets, bytes from the sizes of the logs. A log that
  shrank, by retention, has no rate.
- A topic that is new since the last sample has no rate yet; a deleted one is left out.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.kernel.error import KafkaError
from ottla.operations.group_view import look as look_at_group
from ottla.operations.partition_view import every_partition

if TYPE_CHECKING:
    from ottla.client import Admin


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """A sample of a cluster. Partitions are (topic, number)."""

    at: float
    ends: Mapping[tuple[str, int], int]
    starts: Mapping[tuple[str, int], int]
    sizes: Mapping[str, int]
    #: Group -> (state, members, lag).
    groups: Mapping[str, tuple[str, int, int | None]] = field(default_factory=dict)


def topic_rows(before: ClusterSample | None, now: ClusterSample) -> list[dict[str, Any]]:
    """Return a row per topic: partitions, records, bytes, both rates since `before`, and the hottest partition."""
    rows = []
    seconds = 0.0 if before is None else now.at - before.at
    for topic in sorted({name for name, _ in now.ends}):
        numbers = sorted(number for name, number in now.ends if name == topic)
        grown = {}
        if before is not None and seconds > 0:
            for number in numbers:
                was = before.ends.get((topic, number))
                if was is not None and now.ends[topic, number] >= was:
                    grown[number] = (now.ends[topic, number] - was) / seconds
        size, had = now.sizes.get(topic), None if before is None else before.sizes.get(topic)
        flow = None if size is None or had is None or seconds <= 0 or size < had else (size - had) / seconds
        hot = max(grown, key=lambda number: grown[number], default=None)
        rows.append(
            {
                "topic": topic,
                "partitions": len(numbers),
                "records": sum(now.ends[topic, index] - now.starts.get((topic, index), 0) for index in numbers),
                "bytes": size,
                "records_per_s": round(sum(grown.values()), 1) if grown else None,
                "bytes_per_s": None if flow is None else round(flow, 1),
                "hottest_partition": hot if hot is not None and len(numbers) > 1 and grown[hot] > 0 else None,
            }
        )
    return rows


def group_rows(before: ClusterSample | None, now: ClusterSample) -> list[dict[str, Any]]:
    """Return a row per group: state, members, lag, and how fast the lag grows (negative: the group catches up)."""
    rows = []
    seconds = 0.0 if before is None else now.at - before.at
    for group, (state, members, lag) in now.groups.items():
        had = None if before is None or group not in before.groups else before.groups[group][2]
        change = None if lag is None or had is None or seconds <= 0 else round((lag - had) / seconds, 1)
        rows.append({"group": group, "state": state, "members": members, "lag": lag, "lag_per_s": change})
    return sorted(rows, key=lambda row: (-(row["lag"] or 0), row["group"]))


def take_sample(ask: Admin, *, internal: bool) -> ClusterSample:
    """Take a sample of the cluster."""
    from ottla.client import OffsetSpec, TopicPartition

    views = every_partition(ask, internal=internal)
    led = [TopicPartition(view.topic, view.partition) for view in views if view.leader is not None]
    ends = ask.list_offsets(dict.fromkeys(led, OffsetSpec.LATEST)).succeeded if led else {}
    at = time.monotonic()
    starts = ask.list_offsets(dict.fromkeys(led, OffsetSpec.EARLIEST)).succeeded if led else {}
    sizes: dict[str, int] = {}
    for directories in ask.describe_log_dirs().succeeded.values():
        for replica in (log for directory in directories for log in directory.replicas if not log.future):
            sizes[replica.partition.topic] = sizes.get(replica.partition.topic, 0) + replica.size
    groups: dict[str, tuple[str, int, int | None]] = {}
    for listing in ask.list_groups():
        try:
            group_view = look_at_group(ask, listing.id, listing.type)
        except KafkaError:
            continue  # deleted since it was listed
        groups[listing.id] = (group_view.state, len(group_view.members), group_view.lag)
    return ClusterSample(
        at,
        {(tp.topic, tp.partition): result.offset for tp, result in ends.items()},
        {(tp.topic, tp.partition): result.offset for tp, result in starts.items()},
        sizes,
        groups,
    )
