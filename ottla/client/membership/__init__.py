"""A consumer's group membership: joining, heartbeats and commits, in both protocols.

Invariant: `membership` is pure and decides; `group`, `classic` and `consumer` do the I/O. Read `membership` first.
"""
