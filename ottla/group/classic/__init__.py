"""The handlers of the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Invariant: a client sees the same protocol from a classic group (`join`, `sync`) and as a classic member of a consumer
group (`consumer_members`). `ottla.group.rebalance` has the phases of a rebalance. Read `join` first.
"""
