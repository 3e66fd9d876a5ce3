"""The framework of Kafka's tools: options, errors, exit codes, input files.

Invariant: options, first line on stderr and exit code are those of Apache's tools. Read `option` first, then `tool`.
"""
