"""The operators of the DSL, each with Kafka Streams' exact semantics.

Invariant: between records, an operator keeps its state only in cells and stores of its task, so a task can be stopped
and restarted between any two records without a difference.

Read `stateless.py`, `aggregate.py`, then `view.py` (how tables depend on each other).
"""
