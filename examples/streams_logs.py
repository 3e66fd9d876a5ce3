"""Log aggregation as a stream: this machine's package log, counted by hour and action, and each package's state.

    python examples/streams_logs.py [FILE]                   /var/log/dpkg.log, or FILE; on the test driver
    ottla streams run examples/streams_logs.py               on Spark, exactly once, from "package-log"

Lines that cannot be parsed go to a dead letter topic with the reason in their headers, and the program continues.
"""

import re
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ottla.streams import Application, Handlers, StreamsBuilder, TestDriver, TimeWindows, log_and_continue

PACKAGE_LOG = Path("/var/log/dpkg.log")
#: 2025-06-24 14:36:25 status installed libc6:amd64 2.36-9
LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (\S+) ?(.*)")


def action(line: str) -> str:
    """The action of a line. ValueError if it is not a line of a package log."""
    match = LINE.fullmatch(line)
    if match is None:
        raise ValueError(f"not a line of a package log: {line[:60]}")
    return match[2]


def package(line: str) -> tuple[str, str]:
    """(package, state) of a status line."""
    state, name, *_ = line.split()[3:]
    return name, state


def time_of(record: Any, partition_time: int) -> int:
    """The time in the line, in ms; that of the previous line if it has none."""
    match = LINE.match(record.value)
    return max(partition_time, 0) if match is None else ms(match[1])


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def program() -> Application:
    builder = StreamsBuilder()
    lines = builder.stream("package-log", timestamp_extractor=time_of)
    by_action = lines.select_key(lambda _, line: action(line))
    (
        by_action.group_by_key()
        .windowed_by(TimeWindows.of(timedelta(hours=1)).grace(timedelta(days=1)))
        .count(materialized="actions-per-hour")
        .to_stream(lambda key, count: f"{key.window.start} {key.key}")
        .to("actions-per-hour", value_serde="long")
    )
    states = by_action.filter(lambda kind, line: kind == "status").map(lambda kind, line: package(line))
    states.to_table(materialized="packages").to_stream().to("packages")
    handlers = Handlers(processing=log_and_continue, dead_letter_topic="package-log-bad")
    return builder.build("package-log", key_serde="string", value_serde="string", handlers=handlers)


def main(path: Path) -> None:
    lines = path.read_text(errors="replace").splitlines()
    with TestDriver(program()) as driver:
        topic = driver.input_topic("package-log")
        for line in [*lines, "no line of the log"]:
            topic.pipe("host", line, 0)
        hours = driver.output_topic("actions-per-hour", key_serde="string", value_serde="long").read_map()
        packages = driver.output_topic("packages").read_map()
        bad = driver.output_topic("package-log-bad").read_records()
    counted: Counter[str] = Counter()
    for key, count in hours.items():
        counted[key.split(" ", 1)[1]] += count
    by_hand = Counter(match[2] for line in lines if (match := LINE.fullmatch(line)))
    print(f"{sum(counted.values())} lines in {len({key.split()[0] for key in hours})} hours, {len(bad)} bad")
    print("by action:", ", ".join(f"{name} {count}" for name, count in counted.most_common(5)))
    print(f"{sum(state == 'installed' for state in packages.values())} packages installed")
    print("equal to a count by hand:", counted == by_hand)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PACKAGE_LOG)
