"""The settings of a server: Apache Kafka 4.3.1's 360 settings, one file per area.

Invariant: names, types, defaults, checks, importance and dynamic modes are Kafka's, and a test compares each; the
descriptions are ours. `served=False` marks a setting that a node reads but does nothing with. The mechanism is
`ottla.settings.schema`; read `settings` first (the typed values), then `check` (the constraints between them).
"""
