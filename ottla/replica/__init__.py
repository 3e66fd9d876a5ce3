"""A partition's replication as pure state machines: leader, follower, commit waiters and fetch sessions.

Invariant: a consumer never sees past the high watermark, and with `read_committed` never past the last stable offset.
Read `partition` first: the replica that a node leads; `followed` is the replica that it follows. `leader` and
`follower` are their machines, checked by `tests/replica/model.py`; `ottla/broker/partitions` drives them.
"""
