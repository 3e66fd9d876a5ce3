"""Membership of share groups (KIP-932): the heartbeat, the assignor, and what the share coordinator is asked to hold.

Invariant: a member gets its partitions in the answer to its heartbeat. Read `heartbeat` first.
"""
