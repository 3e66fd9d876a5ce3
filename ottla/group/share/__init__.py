"""Membership of share groups (KIP-932): the heartbeat, the assignor, and requests to the share coordinator.

Invariant: a member gets its partitions in the response to its heartbeat. Read `heartbeat` first.
"""
