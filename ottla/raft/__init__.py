"""The quorum that agrees on the metadata log: KRaft (KIP-595, KIP-630, KIP-853) as a pure machine.

    effects = quorum.step(event, now_ms)

Invariant: state is durable before anything depends on it. An election is saved before its epoch writes a record. A
record is committed only when a majority of the voters has synced it and the leader's epoch has begun.

Read `quorum` first; `event` and `effect` are its vocabulary, `role` its states, `member` their transitions. `log_view`
is the machine's read-only view of the log. Requests and responses are the classes of `ottla.wire.api`: the driver
transports them and fills in the log's or a snapshot's bytes.
"""
