"""Flights out of New York: delays joined with the weather of the hour, and a live ranking of each day's airlines.

    make demo                                                a year of flights on a node and Spark, watched and checked
    python -m examples.streams_flights [DAYS]                the first days of 2013 on the test driver, checked
    ottla streams run examples/streams_flights.py            on Spark, exactly once, from the five topics below

Input topics: "flights" and "weather" as streams, "airlines", "planes" and "airports" as tables. Output topics:
"carrier-delays", each day's airlines with the worst first, updated as the day goes on, and "weather-delays", each
week's departures by airport and weather. Needs `pip install 'ottla[demo]'`, which brings the data.
"""

import json
import sys
import time
from datetime import timedelta
from typing import Any

from ottla.streams import (
    Application,
    JoinWindows,
    KStream,
    PunctuationType,
    Record,
    StreamJoined,
    StreamsBuilder,
    TestDriver,
    TimeWindows,
    Windowed,
    stores,
)

Row = dict[str, Any]

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
#: How late flights and reports may come. It is long because time runs a million times as fast in the demo: when one
#: topic is read a second ahead of another, that is twelve days.
GRACE = 400 * DAY
#: How often the results are emitted, by the wall clock.
TELL_EVERY = timedelta(seconds=0.5)
NOTHING: Row = {
    "flights": 0,
    "cancelled": 0,
    "arrived": 0,
    "late": 0,
    "arrival_minutes": None,
    "worst_minutes": None,
    "seat_minutes_lost": None,
    "departure_minutes": None,
}
WEEK = ("week", "origin", "weather")
#: The stores of results that wait to be emitted.
CHANGED = ("changed-airlines", "changed-weather")
JOINED = StreamJoined(store_name="hours")
#: The figures of an airline's day, besides its name, delay and rank.
AIRLINE = ("carrier", "flights", "cancelled", "arrived", "late", "worst_minutes", "seat_minutes_lost")


def add(key: str, flight: Row, so_far: Row) -> Row:
    """Add a flight. A flight without a departure was cancelled; sums of nothing are null."""
    departure, arrival, seats = flight["dep_delay"], flight["arr_delay"], flight.get("seats")
    lost = None if seats is None else max(arrival or 0, 0) * seats
    return {
        "flights": so_far["flights"] + 1,
        "cancelled": so_far["cancelled"] + (departure is None),
        "arrived": so_far["arrived"] + (arrival is not None),
        "late": so_far["late"] + (arrival is not None and arrival > 15),
        "arrival_minutes": plus(so_far["arrival_minutes"], arrival),
        "worst_minutes": max(
            so_far["worst_minutes"], arrival, key=lambda each: float("-inf") if each is None else each
        ),
        "seat_minutes_lost": plus(so_far["seat_minutes_lost"], lost),
        "departure_minutes": plus(so_far["departure_minutes"], departure),
    }


def plus(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other


def mean(minutes: int | None, count: int) -> float | None:
    return None if minutes is None else minutes / count


def kind_of(report: Row) -> str:
    """The weather of an hour in one word."""
    if (report["precip"] or 0) > 0:
        return "snow" if report["temp"] is not None and report["temp"] < 34 else "rain"
    if report["visib"] is not None and report["visib"] < 3:
        return "fog"
    return "wind" if (report["wind_speed"] or 0) > 20 else "fair"


def day_of(key: Windowed) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(key.window.start / 1000))


def in_place(day: str, airlines: dict[str, Row]) -> list[Row]:
    """A day's airlines by average delay, the worst first; those without an arrival come last."""
    order = sorted(airlines.values(), key=lambda row: (row["average"] is not None, row["average"], row["carrier"]))
    return [{"day": day, "rank": rank, **row} for rank, row in enumerate(reversed(order), 1)]


def airline_row(airline: Row, name: Row) -> Row:
    minutes = airline["arrival_minutes"]
    row = {figure: airline[figure] for figure in AIRLINE}
    return {**row, **name, "delay_minutes": minutes, "average": mean(minutes, airline["arrived"])}


class NowAndThen:
    """Forwards the newest value of each changed key, twice a second; a store holds it until then."""

    def __init__(self, changed: str) -> None:
        self._name = changed

    def init(self, context: Any) -> None:
        self._context = context
        self._changed = context.get_state_store(self._name)
        context.schedule(TELL_EVERY, PunctuationType.WALL_CLOCK_TIME, self._tell)

    def process(self, record: Record) -> None:
        self._changed.put(record.key, record.value)

    def _tell(self, now: int) -> None:
        for key, value in list(self._changed.all()):
            self._changed.delete(key)
            self._context.forward(Record(key, value, self._context.current_stream_time_ms()))


def now_and_then(stream: KStream[str, Row], changed: str) -> KStream[str, Row]:
    stream.builder.add_state_store(stores.key_value(changed, "string", "json"))
    return stream.process(lambda: NowAndThen(changed), changed)


def rank_airlines(builder: StreamsBuilder, flights: KStream[str, Row]) -> None:
    """Day by day, airline by airline, then all airlines of a day in one row."""
    planes, airlines = builder.global_table("planes"), builder.global_table("airlines")
    by_airline = (
        flights.left_join(planes, lambda flight, plane: {**flight, **(plane or {})}, key_selector=lambda tail, _: tail)
        .group_by(lambda _, flight: flight["carrier"])
        .windowed_by(TimeWindows.of(DAY).grace(GRACE))
        .aggregate(lambda: NOTHING, add, materialized="airline-days")
        .to_stream(lambda key, _: f"{day_of(key)} {key.key}")
    )
    (
        now_and_then(by_airline, CHANGED[0])
        .map(lambda key, airline: (key.split()[0], {"carrier": key.split()[1], **airline}))
        .join(airlines, airline_row, key_selector=lambda _, airline: airline["carrier"])
        .group_by_key()
        .aggregate(dict, lambda _, airline, day: {**day, airline["carrier"]: airline}, materialized="days")
        .to_stream()
        .map_values(in_place)
        .to("carrier-delays")
    )


def weather_row(delays: Row, airport: Row) -> Row:
    minutes, flights, cancelled = delays["departure_minutes"], delays["flights"], delays["cancelled"]
    row = {name: delays[name] for name in ("week", "origin", "weather", "flights", "cancelled")}
    return {**row, "airport": airport["name"], "delay_minutes": minutes, "average": mean(minutes, flights - cancelled)}


def compare_weather(builder: StreamsBuilder, flights: KStream[str, Row]) -> None:
    """Join each flight with the report of its hour, whichever comes first; then count by week."""
    reports, airports = builder.stream("weather"), builder.global_table("airports")
    its_hour = JoinWindows.of_time_difference_and_grace(timedelta(0), GRACE).before(HOUR - timedelta(milliseconds=1))
    by_weather = (
        flights.select_key(lambda _, flight: flight["origin"])
        .repartition(name="origins")
        .join(reports, lambda flight, report: {**flight, "weather": kind_of(report)}, its_hour, JOINED)
        .group_by(lambda origin, flight: f"{origin} {flight['weather']}")
        .windowed_by(TimeWindows.of(7 * DAY).grace(GRACE))
        .aggregate(lambda: NOTHING, add, materialized="weather-weeks")
        .to_stream(lambda key, _: f"{day_of(key)} {key.key}")
    )
    (
        now_and_then(by_weather, CHANGED[1])
        .map(lambda key, delays: (key.split()[1], {**dict(zip(WEEK, key.split(), strict=True)), **delays}))
        .join(airports, weather_row, key_selector=lambda origin, _: origin)
        .to("weather-delays")
    )


def program() -> Application:
    builder = StreamsBuilder()
    flights = builder.stream("flights").map_values(
        lambda flight: {name: flight[name] for name in ("carrier", "origin", "dep_delay", "arr_delay")}
    )
    rank_airlines(builder, flights)
    compare_weather(builder, flights)
    return builder.build("flight-delays", key_serde="string", value_serde="json")


def main(days: int) -> int:
    from examples.flights import data, referee
    from examples.flights.results import Newest

    events = [event for tick in data.ticks(days) for event in tick]
    results = Newest()
    with TestDriver(program()) as driver:
        for event in (*data.tables(), *events):
            driver.pipe(event.topic, event.key, event.value, event.timestamp_ms)
        driver.advance_wall_clock(TELL_EVERY)
        for topic in ("carrier-delays", "weather-delays"):
            for value in driver.output_topic(topic).read_values():
                results.add(topic, value)
    verdicts = [referee.judge(topic, results.rows(topic), days) for topic in results.told]
    print(f"{len(events):,} flights and weather reports of {days} days")
    last = results.rows("carrier-delays")[-1]["day"]
    for row in results.rows("carrier-delays"):
        if row["day"] == last and row["rank"] <= 3:
            print(f"{last}, {row['rank']}: {row['name']}, {row['average']:.1f} minutes late")
    for verdict in verdicts:
        print(f"{verdict.topic}: told {results.told[verdict.topic]:,} times, {verdict.rows:,} rows,", end=" ")
        print("all equal to pandas" if verdict.equal else json.dumps(verdict.differences))
    return 0 if all(verdict.equal for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 9))
