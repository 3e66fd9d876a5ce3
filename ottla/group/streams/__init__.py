"""Streams groups (KIP-1071): the heartbeat, who does which task, and each member's way there.

Invariant: a task is given to a member only when its last owner has let it go. Read `heartbeat` first.
"""
