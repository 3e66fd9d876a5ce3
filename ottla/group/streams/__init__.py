"""Streams groups (KIP-1071): the heartbeat, the task assignment, and the reconciliation of members.

Invariant: a member gets an active task only after its last owner has given it up. Read `heartbeat` first.
"""
