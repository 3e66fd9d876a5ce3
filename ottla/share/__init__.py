"""Share groups (KIP-932) apart from membership: who has which record now, and what of that survives. Pure.

    state, coordinator     the share coordinator: one partition of `__share_group_state`, step and replay
    partition, window      one partition as one share group reads it: acquire, acknowledge, release, expire
    session                which partitions a member reads through a connection

Membership is `ottla.group`'s; reading the log and waiting are the broker's.
"""
