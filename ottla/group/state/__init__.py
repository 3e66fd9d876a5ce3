"""What one partition of `__consumer_offsets` holds in memory: groups of the four kinds, and committed offsets.

Invariant: only `ottla.group.records` changes it, on leader and follower alike. Read `shard` first.
"""
