"""The group coordinator: classic, consumer, share and streams groups and the offsets they commit. Pure.

One `GroupCoordinator` holds one partition of `__consumer_offsets`: `step(event, now) -> [effect]`, `replay(record)`.
Read `coordinator` and `ottla.coordinator.contract` first (what the driver does), then `event`, then the room you need:

    state                     what the partition holds: the four kinds of groups, committed offsets, `Shard`
    records                   bytes to state and back, and what each record does to the state
    classic, rebalance        the classic protocol: join, sync; the phases of a rebalance
    consumer                  KIP-848: heartbeat, membership, group epoch, target, reconciliation, assignors
    share                     KIP-932: heartbeat, assignor, and what the share coordinator is asked to hold
    streams, topology         KIP-1071: heartbeat, target, assignor, reconciliation; subtopologies and tasks
    conversion                a group changes its kind while it lives
    offsets, deletion         committed offsets: commit, fetch; what makes groups and offsets go
    description, failure      what people see; what a failed request is answered
    timer, topic, setting     deadlines; the port to the metadata image; a coordinator's settings

Invariant: what is durable changes by `replay` only, on the leader as on load, so that replaying the log into an empty
coordinator gives the same groups. What is not durable, joins that wait and deadlines, is the leader's own and is lost
with it; members then join again.
"""
