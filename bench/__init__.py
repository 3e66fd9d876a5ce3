"""Ottla beside Apache Kafka 4.3.1: the same unmodified clients, in one run, on one machine. `python -m bench`.

What is here:
- `system.py`: starts either system with its own defaults, and measures cold start and memory.
- `work.py`: the works (produce, consume, latency), each a function from a running system to figures.
- `raw.py`: our own load generator, for what no client tool measures: one record a request on many connections, and ack
  latencies at a fixed rate, open-loop (a late answer delays no later request, so there is no coordinated omission).
- `librdkafka.py`: confluent-kafka as a program, so that its process starts and ends with the measurement.
- `report.py`: medians and ratios as Markdown and JSON, and the plot.

Rules:
- The systems alternate within a round, and the round after begins with the other one: what the machine does meanwhile
  meets both.
- Every work counts what came through and fails if a record is missing. No work fails for being slow.
- Each system keeps its defaults; Apache gets the heap and the collector of its own start script.
"""
