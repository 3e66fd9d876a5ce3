"""The group coordinator: classic, consumer, share and streams groups, and their committed offsets. Pure.

One `GroupCoordinator` holds one partition of `__consumer_offsets`: `step(event, now) -> [effect]`, `replay(record)`.
Read `coordinator` and `ottla.coordinator.contract` (the driver's part) first, then `event`, then the room you need:

    state                     the state of a partition: the four kinds of groups, committed offsets, `Shard`
    records                   encoding of records, and replay into the state
    classic, rebalance        the classic protocol: join, sync; the phases of a rebalance
    consumer                  KIP-848: heartbeat, membership, group epoch, target, reconciliation, assignors
    share                     KIP-932: heartbeat, assignor, and the state kept by the share coordinator
    streams, topology         KIP-1071: heartbeat, target, assignor, reconciliation; subtopologies and tasks
    conversion                the online conversion between classic and consumer groups
    offsets, deletion         commit and fetch of offsets; deletion and expiration of groups and offsets
    description, failure      describe and list; error responses
    timer, topic, setting     deadlines; the port to the metadata image; a coordinator's settings

Invariant: only `replay` changes durable state, both on the leader and on load, so replaying the log into an empty
coordinator gives the same groups. Waiting joins and deadlines are not durable: they are lost with the leader, and the
members join again.
"""
