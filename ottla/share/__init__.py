"""Share groups (KIP-932) apart from membership: which member has which record, and the stored state. Pure.

    state, coordinator     the share coordinator of one partition of `__share_group_state`: step and replay
    partition, window      one partition as a share group reads it: acquire, acknowledge, release, expire
    session                the partitions that a member reads over a connection

`ottla.group` has the membership; the broker reads the log and parks fetches.
"""
