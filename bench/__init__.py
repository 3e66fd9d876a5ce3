"""Ottla beside Apache Kafka 4.3.1: the same unmodified clients, in one run, on one machine. `python -m bench`.

Read `work.py` first. What is here:
- `work.py`: the works (starts, produce, consume, latency, memory), each a function from a running system to figures.
- `system.py`: either system as a process: its starts, its memory, and tools run against it.
- `load.py`: our own load generator, for what no client tool measures: one record a request on many connections, and
  ack latencies at a fixed rate, open-loop (a late answer delays no later request: no coordinated omission).
- `raw.py`: what the bench itself asks of a system, over a plain socket.
- `librdkafka.py`: confluent-kafka as a program, so that its process starts and ends with the measurement.
- `report.py`, `plot.py`: medians and ratios as Markdown and JSON, and as a picture.
- `follower.py`: a replica's fetches, in the name of a node that is dead.
- `wire.py`: encode and decode of the hot messages; a bench of its own.

Rules:
- Never are both systems up. They alternate within a round, and the round after begins with the other one: what the
  machine does meanwhile meets both.
- Every work counts what came through and fails if a record is missing. No work fails for being slow.
- Both get the same server.properties but for ports and directories; Apache gets the heap and the collector of its own
  scripts. docs/internals/bench.md has what is not obvious.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: The data of a run lie here and not in /tmp, which may be memory: then a flush would cost nothing.
SCRATCH = ROOT / "build" / "bench"
RESULTS = ROOT / "bench" / "results"
