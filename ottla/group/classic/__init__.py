"""The classic protocol's requests: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Invariant: one request does the same for a classic group (`join`, `sync`) and for a classic member of a consumer group
(`consumer_members`). The phases of a rebalance are in `ottla.group.rebalance`. Read `join` first.
"""
