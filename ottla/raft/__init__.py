"""The quorum that agrees on the metadata log: KRaft (KIP-595, KIP-630, KIP-853) as a pure machine.

    effects = quorum.step(event, now_ms)

Invariant: what must be durable stands before what depends on it. An election is saved before its epoch writes a record;
a record counts as committed only when a majority of the voters has it synced and the leader's epoch has begun.

Read `quorum` first; `event` and `effect` are its vocabulary, `role` its states. What stands is what a quorum of one
needs: voters are a set, votes are counted and the high watermark is a majority's, so that requests of other voters can
be added as events without another shape.
"""
