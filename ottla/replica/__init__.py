"""A partition's replication, pure: the leader's view, the follower's, who waits, and fetch sessions.

Invariant: a consumer never sees past the high watermark, and with `read_committed` never past the last stable offset.
Read `partition` first: it is what a node leads; `followed` is what it follows. `leader` and `follower` are their
machines, proved by `tests/replica/model.py`; the broker drives them in `ottla/broker/partitions`.
"""
