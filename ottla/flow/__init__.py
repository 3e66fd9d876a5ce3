"""The plan of a stream program, and the pure engine that executes it with Kafka Streams' semantics.

Invariant: nothing here touches a clock, a file, a socket or a thread. A task is
`(state, ordered records, clock) -> (state, outputs)`; the same inputs give the same outputs, however they are cut into
batches.

Read `plan.py` (what the DSL writes: immutable nodes), then `topology.py` (what the engine executes: sources,
processors, stores and sinks, as in Kafka Streams), then `engine.py` (a task). `lower.py` turns a plan into a topology.
`operator/` has one file per kind of operator, `store/` the state stores over ordered bytes.
"""
