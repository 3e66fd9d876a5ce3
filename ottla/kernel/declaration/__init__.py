"""What can be set: Apache Kafka 4.3.1's 360 server settings, 34 of a topic and 17 of a group, one file an area.

Invariant: names, types, defaults, checks, importance and dynamic modes are Kafka's, and a test compares every one; the
sentences are ours. `served=False` marks what a node reads and does nothing with yet. The mechanism is
`ottla.kernel.setting`, the values are in `server_settings`, `topic_settings` and `group_settings`.
"""
