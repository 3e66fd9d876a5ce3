"""Kafka's tools under Kafka's names: `kafka-topics`, `kafka-consumer-groups` and the rest, one file per tool.

Invariant: what a script sees (options, lines on stdout, first line on stderr, exit code) is what Apache Kafka 4.3's
tool shows for the same arguments against the same cluster; `tests/interop/test_console.py` compares each tool with
Apache's. Our own tools are in `ottla.cli.ottla`. Read `option` first (how options are declared, parsed and checked),
then `tool` (how a tool runs and fails), then any tool. docs/internals/tools.md lists the intended differences.
"""
