"""The quorum that agrees on the metadata log: KRaft (KIP-595, KIP-630, KIP-853) as a pure machine.

    effects = quorum.step(event, now_ms)

Invariant: what must be durable stands before what depends on it. An election is saved before its epoch writes a record;
a record counts as committed only when a majority of the voters has it synced and the leader's epoch has begun.

Read `quorum` first; `event` and `effect` are its vocabulary, `role` its states, `member` how they change. `log_view` is
what the machine reads of the log. Requests and responses are the classes of `ottla.wire.api`: the driver carries them,
and puts the log's or a snapshot's bytes into the answers that want them.
"""
