"""Computes the figures with pandas, straight from the tables, and compares the pipeline's with them, exactly.

Sums and counts are whole numbers, and an average is one division of two of them: there is one right answer to the last
bit, whatever the order of the rows, so every comparison is exact.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from examples.flights import data
from examples.flights.results import Row

LATE_MINUTES = 15


@dataclass(frozen=True, slots=True)
class Verdict:
    """The comparison of a result topic with the expected rows."""

    topic: str
    rows: int
    figures: int
    #: the first few missing, different or unexpected rows, as text
    differences: list[str]

    @property
    def equal(self) -> bool:
        return not self.differences


def judge(topic: str, rows: list[Row], days: int = data.YEAR) -> Verdict:
    """Compare the rows of a topic with the expected ones: every row once, every figure equal."""
    expected = EXPECTED[topic](days)
    wanted, got = sorted(map(_line, expected)), sorted(map(_line, rows))
    differences = []
    if wanted != got:
        missing, extra = _minus(wanted, got), _minus(got, wanted)
        differences = [*(f"expected {line}" for line in missing[:5]), *(f"received {line}" for line in extra[:5])]
        differences.append(f"{len(missing)} rows are missing or differ, {len(extra)} are not as expected")
    return Verdict(topic, len(rows), sum(map(len, rows)), differences)


def carrier_delays(days: int) -> list[Row]:
    """The expected rows of `carrier-delays`."""
    flights = data.flights(days).merge(data.table("planes")[["tailnum", "seats"]], on="tailnum", how="left")
    flights["day"] = flights.time.dt.strftime("%Y-%m-%d")
    flights["cancelled"] = flights.dep_delay.isna()
    flights["late"] = flights.arr_delay > LATE_MINUTES
    flights["seat_minutes_lost"] = flights.arr_delay.clip(lower=0).fillna(0) * flights.seats
    by = flights.groupby(["day", "carrier"])
    table = by.agg(
        flights=("flight", "size"),
        cancelled=("cancelled", "sum"),
        arrived=("arr_delay", "count"),
        late=("late", "sum"),
        worst_minutes=("arr_delay", "max"),
    )
    table["delay_minutes"] = by.arr_delay.sum(min_count=1)
    table["seat_minutes_lost"] = by.seat_minutes_lost.sum(min_count=1)
    table["average"] = table.delay_minutes / table.arrived.where(table.arrived > 0)
    table = table.reset_index().merge(data.table("airlines"), on="carrier")
    table = table.sort_values(["average", "carrier"], ascending=False, na_position="last")
    table["rank"] = table.groupby("day").cumcount() + 1
    return _rows(table)


def weather_delays(days: int) -> list[Row]:
    """The expected rows of `weather-delays`."""
    weather = data.weather(days)
    conditions = [(weather.precip > 0) & (weather.temp < 34), weather.precip > 0, weather.visib < 3]
    conditions.append(weather.wind_speed > 20)
    weather["weather"] = np.select(conditions, ["snow", "rain", "fog", "wind"], "fair")
    weather["hour"] = weather.time
    flights = data.flights(days).assign(hour=lambda frame: frame.time.dt.floor("h"))
    joined = flights.merge(weather[["origin", "hour", "weather"]], on=["origin", "hour"])
    joined["week"] = joined.hour.dt.floor("7D").dt.strftime("%Y-%m-%d")  # weeks begin on Thursday, as 1970 did
    joined["cancelled"] = joined.dep_delay.isna()
    joined = joined.merge(data.table("airports").rename(columns={"faa": "origin", "name": "airport"}), on="origin")
    by = joined.groupby(["week", "origin", "airport", "weather"])
    table = by.agg(flights=("flight", "size"), cancelled=("cancelled", "sum"), left=("dep_delay", "count"))
    table["delay_minutes"] = by.dep_delay.sum(min_count=1)
    table["average"] = table.delay_minutes / table.left.where(table.left > 0)
    return _rows(table.reset_index().drop(columns="left"))


EXPECTED: dict[str, Callable[[int], list[Row]]] = {"carrier-delays": carrier_delays, "weather-delays": weather_delays}


def _rows(table: pd.DataFrame) -> list[Row]:
    nullable = table.astype(object).where(table.notna(), None)
    return [
        {
            str(name): value if name == "average" or not isinstance(value, float) else int(value)
            for name, value in row.items()
        }
        for row in nullable.to_dict("records")
    ]


def _line(row: Row) -> str:
    """A row as text, equal only for equal rows: the repr of a float identifies it exactly."""
    return ", ".join(f"{name}={row[name]!r}" for name in sorted(row))


def _minus(these: list[str], those: list[str]) -> list[str]:
    """The multiset difference of two lists of lines."""
    left: dict[str, int] = {}
    for line in those:
        left[line] = left.get(line, 0) + 1
    lacking = []
    for line in these:
        if left.get(line):
            left[line] -= 1
        else:
            lacking.append(line)
    return lacking
