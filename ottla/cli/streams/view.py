"""A stream application seen from the cluster: tasks, stores, lag, and rates between two samples.

A sample asks the cluster only, so it works wherever the program runs. The stream time of a task is in the metadata of
its commits.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.kernel.error import OttlaError
from ottla.spark.streams import last_run
from ottla.spark.streams.cells import newest

if TYPE_CHECKING:
    from ottla.client import Admin
    from ottla.client.membership.commit import CommittedOffset
    from ottla.kernel.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class StreamsSample:
    """A sample of an application's offsets."""

    at: float
    committed: Mapping[TopicPartition, CommittedOffset]
    ends: Mapping[TopicPartition, int]


def application_ids(ask: Admin) -> list[str]:
    """Return the applications that have run on this cluster."""
    names = (topic.name for topic in ask.list_topics())
    return sorted(name.removesuffix(last_run.SUFFIX) for name in names if name.endswith(last_run.SUFFIX))


def last_run_of(
    ask: Admin, settings: Mapping[str, Any], application_id: str
) -> tuple[last_run.LastRun, last_run.Alive | None]:
    """Return an application's last run and its last sign of life. OttlaError if it has not run on this cluster."""
    last, alive = last_run.read(ask, settings, application_id)
    if last is not None:
        return last, alive
    from difflib import get_close_matches

    there = application_ids(ask)
    close = get_close_matches(application_id, there, n=1)
    hint = f"; did you mean {close[0]}?" if close else "; `ottla streams` lists those that have run" if there else ""
    raise OttlaError(f"no application {application_id} has run on this cluster{hint}")


def take_sample(ask: Admin, run: last_run.LastRun) -> StreamsSample:
    """Take a sample: the committed and end offsets of the partitions that the tasks read."""
    from ottla.client import OffsetSpec, TopicPartition

    places = [TopicPartition(topic, number) for task in run.tasks for topic, number in task["sources"]]
    committed = ask.list_group_offsets(run.application_id)
    ends = ask.list_offsets(dict.fromkeys(places, OffsetSpec.LATEST)).succeeded if places else {}
    return StreamsSample(time.monotonic(), committed, {place: end.offset for place, end in ends.items()})


def task_rows(run: last_run.LastRun, now: StreamsSample, before: StreamsSample | None) -> list[dict[str, Any]]:
    """Return a row per task: its input, lag, stream time, stores, and records a second since `before`."""
    from ottla.client import TopicPartition

    seconds = 0.0 if before is None else now.at - before.at
    rows = []
    for task in run.tasks:
        places = [TopicPartition(topic, number) for topic, number in task["sources"]]
        done = {place: now.committed[place] for place in places if place in now.committed}
        at = {place: done[place].offset if place in done else 0 for place in places}
        lag = sum(max(0, now.ends[place] - at[place]) for place in places if place in now.ends)
        rate = None
        if before is not None and seconds > 0:
            was = before.committed
            rate = round(sum(at[tp] - was[tp].offset for tp in done if tp in was) / seconds, 1)
        cells, _ = newest({place: committed_offset.metadata for place, committed_offset in done.items()})
        stream_time = cells.get("stream_time", -1)
        rows.append(
            {
                "task": task["id"],
                "reads": [str(place) for place in places],
                "stores": task["stores"],
                "lag": lag,
                "records_per_s": rate,
                "stream_time_ms": stream_time if stream_time >= 0 else None,
            }
        )
    return rows


def state(alive: last_run.Alive | None) -> str:
    """Return the state that the application last reported, LOST if it no longer runs, or NOT_RUNNING."""
    if alive is None or alive.state in ("NOT_RUNNING", "ERROR"):
        return "NOT_RUNNING" if alive is None else alive.state
    return alive.state if alive.runs else "LOST"


def store_rows(run: last_run.LastRun) -> list[dict[str, Any]]:
    """Return a row per store: its kind, serdes, number of tasks, and changelog."""
    return [
        {
            "store": name,
            "kind": form["kind"],
            "key": form["key"],
            "value": form["value"],
            "tasks": sum(name in task["stores"] for task in run.tasks),
            "changelog": f"{run.application_id}-{name}-changelog",
        }
        for name, form in run.stores.items()
    ]
