"""Feeding rows into a task's operators.

Rules:
- The task's fields for the current record (`rows`, `row`, `timestamp`) are set before the operators run.
- After each record, the punctuators that its time makes due are called.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import TYPE_CHECKING

from ottla.flow.record import Headers
from ottla.flow.task.push import Push
from ottla.flow.task.rows import Rows

if TYPE_CHECKING:
    from ottla.flow.engine import Task
    from ottla.flow.task.receive import Receiver
    from ottla.flow.vector.evaluate import Frame
    from ottla.flow.vector.step import RegionRun


def feed(task: Task, receiver: Receiver, rows: Rows, start: int, end: int) -> None:
    """Process rows of one partition: together if the program's steps allow it, otherwise one by one."""
    task.rows = rows
    region = receiver.region
    if region is not None and not task.by_stream_time and region.run(rows, start, end):
        return
    emit, stream_time, punctuators = receiver.context.emit, task.time, task.by_stream_time
    headers: Iterable[Headers] = repeat(()) if rows.headers is None else rows.headers[start:end]
    keys, values = rows.objects
    columns = (keys, values, rows.timestamps)
    if end - start < rows.end:
        columns = (keys[start:end], values[start:end], rows.timestamps[start:end])
    for row, key, value, timestamp, own in zip(range(start, end), *columns, headers, strict=False):
        task.row, task.received, task.timestamp = row, None, timestamp
        if timestamp > stream_time.value:
            stream_time.value = timestamp
        emit(key, value, timestamp, own)
        if punctuators.schedules:
            punctuators.run(stream_time.value, task.call)


def feed_two(
    task: Task, first: tuple[Receiver, Rows], second: tuple[Receiver, Rows], *, first_wins: bool, limit: int
) -> int:
    """Process rows of two partitions by timestamp until one partition has no more, or `limit` rows have been processed
    and the other partition goes next. Returns how many.

    The first row of `first` is the next one. `first_wins`: on equal timestamps, `first` goes before `second`.
    """
    stream_time, punctuators, count = task.time, task.by_stream_time, 0
    while True:
        receiver, rows = first
        emit, (keys, values), times, headers = receiver.context.emit, rows.objects, rows.timestamps, rows.headers
        other = second[1]
        until = other.timestamps[other.at] + first_wins
        task.rows, row, end = rows, rows.at, rows.end
        while row < end and (timestamp := times[row]) < until:
            task.row, task.received, task.timestamp = row, None, timestamp
            if timestamp > stream_time.value:
                stream_time.value = timestamp
            emit(keys[row], values[row], timestamp, () if headers is None else headers[row])
            if punctuators.schedules:
                punctuators.run(stream_time.value, task.call)
            row += 1
        count += row - rows.at
        rows.at = row
        if row == end or count >= limit:
            return count
        first, second, first_wins = second, first, not first_wins


def feed_frame(task: Task, push: Push, frame: Frame, run: RegionRun) -> None:
    """Pass on records one by one after a step on columns."""
    stream_time, headers = task.time, run.headers
    newest = run.newest[frame.rows].tolist()
    for key, value, timestamp, number, time, (rows, row) in zip(
        *frame.columns(), newest, run.origins(frame), strict=True
    ):
        task.rows, task.row, task.received, task.timestamp = rows, row, None, timestamp
        stream_time.value = time
        push(key, value, timestamp, () if headers is None else headers[number])
