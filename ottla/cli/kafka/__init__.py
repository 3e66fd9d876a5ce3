"""Kafka's own tools under Kafka's own names: `kafka-topics`, `kafka-consumer-groups` and the rest, one file a tool.

Invariant: what a script sees (options, lines on stdout, first line on stderr, exit code) is what Apache Kafka 4.3's
tool shows for the same words against the same cluster; `tests/interop/test_console.py` holds each tool against
Apache's. The tools for people are in `ottla.cli`. Read `option` first (how options are declared, read and refused),
then `tool` (how a tool runs and fails), then any tool. docs/internals/tools.md lists where we differ on purpose.
"""
