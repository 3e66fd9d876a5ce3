"""How a tool of Kafka's is declared, run and refused: options, errors, exit codes, files that people write.

Invariant: words, first line on stderr and exit code are those of Apache's tools. Read `option` first, then `tool`.
"""
