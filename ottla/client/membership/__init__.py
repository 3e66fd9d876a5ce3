"""A member of a group: joining, heartbeats, commits, in both protocols.

Invariant: `membership` decides and is pure; `group`, `classic` and `consumer` carry out. Read `membership` first.
"""
