"""Consumer groups (KIP-848): the heartbeat, the server-side assignment, and the reconciliation of members.

Invariant: a member waits for others only while they own partitions of its target. Read `heartbeat` first.
"""
