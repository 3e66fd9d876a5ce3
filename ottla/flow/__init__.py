"""The plan of a stream program, and the one pure engine that executes it with Kafka Streams' semantics.

Invariant: nothing here touches a clock, a file, a socket or a thread. A task is
`(state, ordered records, clock) -> (state, outputs)`; the same inputs give the same outputs, however they are cut into
batches.

Read `plan.py` (what the DSL writes: immutable nodes), then `topology.py` (what is executed: sources, processors, stores
and sinks, as Kafka Streams describes them), then `engine.py` (a task). `lower.py` turns the first into the second.
`operator/` holds one file for each kind of operator, `store/` the state stores over ordered bytes.
"""
