"""What can be set on a server: Apache Kafka 4.3.1's 360 settings, one file an area.

Invariant: names, types, defaults, checks, importance and dynamic modes are Kafka's, and a test compares every one; the
sentences are ours. `served=False` marks what a node reads and does nothing with yet. The mechanism is
`ottla.settings.schema`; read `settings` first (the typed values), then `check` (what must fit together).
"""
