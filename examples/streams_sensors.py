"""IoT sensors: hopping averages, and alerts with hysteresis.

    python examples/streams_sensors.py                       generated readings, on the test driver
    ottla streams run examples/streams_sensors.py            on Spark, exactly once, from "readings" to "alerts"

A sensor's temperature is averaged over five minutes, every minute. An alert is raised when the average exceeds 80, and
cleared only when it falls below 70: with one limit, a value that swings around it would alert all the time. The
processor keeps the raised alerts in its own store.
"""

import math
import random
from datetime import timedelta
from typing import Any

from ottla.streams import Application, EmitStrategy, Record, StreamsBuilder, TestDriver, TimeWindows, stores

RAISE_ABOVE, CLEAR_BELOW = 80.0, 70.0
MINUTE = 60_000


class Hysteresis:
    """Forwards only the changes of a sensor's alert."""

    def init(self, context: Any) -> None:
        self.context = context
        self.alerts = context.get_state_store("alerts")

    def process(self, record: Record) -> None:
        raised = self.alerts.get(record.key) == "raised"
        if not raised and record.value > RAISE_ABOVE:
            self._change(record, "raised")
        elif raised and record.value < CLEAR_BELOW:
            self._change(record, "cleared")

    def _change(self, record: Record, state: str) -> None:
        self.alerts.put(record.key, state)
        self.context.forward(record.with_value({"alert": state, "average": round(record.value, 1)}))


def program() -> Application:
    builder = StreamsBuilder()
    builder.add_state_store(stores.key_value("alerts", "string", "string"))
    readings = builder.stream("readings", key_serde="string", value_serde="double")
    windows = TimeWindows.of(timedelta(minutes=5)).advance_by(timedelta(minutes=1)).grace(timedelta(seconds=10))
    averages = (
        readings.group_by_key()
        .windowed_by(windows)
        .emit_strategy(EmitStrategy.on_window_close())
        .aggregate(
            lambda: {"sum": 0.0, "count": 0},
            lambda sensor, value, all_: {"sum": all_["sum"] + value, "count": all_["count"] + 1},
            materialized="averages",
        )
        .to_stream(lambda key, all_: key.key)
        .map_values(lambda all_: all_["sum"] / all_["count"])
    )
    averages.to("averages", value_serde="double")
    averages.process(Hysteresis, "alerts").to("alerts")
    return builder.build("sensors", key_serde="string", value_serde="json")


def temperature(sensor: int, second: int, draw: random.Random) -> float:
    """Sensor 3 overheats between minutes 20 and 40, and swings around the limit; the others stay cool."""
    hot = 32.0 if sensor == 3 and 20 * 60 <= second < 40 * 60 else 0.0
    return 50 + hot + 3 * math.sin(second / 40) + draw.uniform(-4, 4)


def main() -> None:
    draw = random.Random(7)
    with TestDriver(program()) as driver:
        topic = driver.input_topic("readings")
        swings, above = 0, False
        for second in range(0, 3_600, 5):
            driver.advance_wall_clock(timedelta(seconds=5))  # closed windows are emitted once a second
            for sensor in range(8):
                value = temperature(sensor, second, draw)
                topic.pipe(f"sensor-{sensor}", value, second * 1000)
                if sensor == 3:
                    swings, above = swings + (above != (value > RAISE_ABOVE)), value > RAISE_ABOVE
        averages = driver.output_topic("averages", key_serde="string", value_serde="double").read_key_values()
        alerts = driver.output_topic("alerts").read_records()
    print(f"{len(averages)} averages; sensor-3 crossed {RAISE_ABOVE:g} degrees {swings} times")
    for alert in alerts:
        minute = alert.timestamp // MINUTE
        print(f"minute {minute}: {alert.key} {alert.value['alert']} at {alert.value['average']} degrees")


if __name__ == "__main__":
    main()
