"""The state of one partition of `__consumer_offsets` in memory: groups of the four kinds, and committed offsets.

Invariant: only replay (`ottla.group.records`) changes durable state. Read `shard` first.
"""
