"""Ottla beside Apache Kafka 4.3.1: the same unmodified clients, in one run, on one machine. `python -m bench`.

Read `work.py` first. The parts:
- `work.py`: the works (starts, produce, consume, latency, memory), each a function from a running system to figures.
- `system.py`: either system as a process: its starts, its memory, and tools run against it.
- `load.py`: our own load generator, for what no client tool measures: one record per request on many connections, and
  ack latencies at a fixed rate, open-loop (a late answer delays no later request: no coordinated omission).
- `raw.py`: the bench's own requests to a system, over a plain socket.
- `librdkafka.py`: confluent-kafka as a program, so that its process starts and ends with the measurement.
- `report.py`, `plot.py`: medians and ratios as Markdown and JSON, and as a picture.
- `follower.py`: a replica's fetches, in the name of a dead node.
- `wire.py`: encode and decode of the hot messages; a bench of its own.

Rules:
- The two systems never run at the same time. They alternate within a round, and the next round begins with the other
  one, so that other load on the machine affects both.
- Every work counts the records and fails if one is missing. No work fails for being slow.
- Both use the same server.properties except for ports and directories; Apache gets the heap and the garbage collector
  of its own scripts. docs/internals/bench.md explains what is not obvious.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: The data of a run is here and not in /tmp, which may be memory, where a flush costs nothing.
SCRATCH = ROOT / "build" / "bench"
RESULTS = ROOT / "bench" / "results"
