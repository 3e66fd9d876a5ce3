"""Log aggregation: ship real logs into a topic and count the lines by day and kind.

    python examples/log_aggregation.py [FILE ...]      this machine's package log, unless files are given

Every line that begins with a date and a time becomes a record, with the file as its key and the line's time as its
timestamp. So the topic can be read by time, kept for a week, compacted, or watched with `ottla consume logs`.
"""

import gzip
import re
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import ottla
from ottla.client import Admin, Consumer, Producer, TopicPartition

#: 2025-06-24 14:36:25 status installed ...   or   2025-06-24T14:36:25,123 INFO ...
LINE = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)\S* +(\S+)")


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a log with their times, in ms since 1970."""
    with gzip.open(path, "rt", errors="replace") if path.suffix == ".gz" else path.open(errors="replace") as log:
        for line in log:
            match = LINE.match(line)
            if match:
                yield (
                    int(datetime.fromisoformat(f"{match[1]} {match[2]}").astimezone().timestamp() * 1000),
                    line.rstrip(),
                )


def ship(servers: str, paths: list[Path]) -> int:
    """Send every line to the topic, as an agent on each machine does."""
    count = 0
    with Producer(servers, linger_ms=50, compression_type="zstd") as producer:
        for path in paths:
            for timestamp_ms, line in lines(path):
                producer.send("logs", line, key=str(path), timestamp=timestamp_ms)
                count += 1
    return count


def aggregate(servers: str, count: int) -> dict[str, Counter[str]]:
    """The number of lines by day and kind, the first word after the time."""
    days: dict[str, Counter[str]] = {}
    with Consumer(servers, auto_offset_reset="earliest", value_deserializer="str") as consumer:
        consumer.assign([TopicPartition("logs", partition) for partition in range(4)])
        while count > 0:
            for record in consumer.poll(1, max_records=5000):
                match = LINE.match(str(record.value))
                assert match
                days.setdefault(match[1], Counter())[match[3]] += 1
                count -= 1
    return days


def main(servers: str, paths: list[Path]) -> None:
    with Admin(servers) as admin:
        # Records are as old as their log lines: with a retention time, the first retention check would delete them.
        admin.create_topic("logs", 4, configs={"retention.ms": "-1", "compression.type": "producer"})
    count = ship(servers, paths)
    print(f"{count:,} lines of {', '.join(map(str, paths))} shipped")
    days = aggregate(servers, count)
    most = max((counter.total() for counter in days.values()), default=1)
    for day, counter in sorted(days.items()):
        kinds = ", ".join(f"{kind} {number:,}" for kind, number in counter.most_common(4))
        print(f"  {day} {counter.total():7,}  {'█' * max(1, 40 * counter.total() // most):40}  {kinds}")


if __name__ == "__main__":
    files = [Path(each) for each in sys.argv[1:]] or sorted(Path("/var/log").glob("dpkg.log*"))
    if not files:
        sys.exit("no /var/log/dpkg.log here; give files whose lines begin with a date and a time")
    with ottla.Node() as node:
        main(node.bootstrap_servers, files)
