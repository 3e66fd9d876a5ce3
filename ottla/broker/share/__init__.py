"""Share groups on this node (KIP-932): share partitions at their leader, share coordinators, and requests between them.

Invariant: a share partition's progress is stored by its coordinator before a member is told. Read `partitions` first.
"""
