"""Share groups on this node (KIP-932): share partitions on their leader, share coordinators, and who asks whom.

Invariant: what a share partition has got to is stored by its coordinator before a member is told. Read `partitions`.
"""
