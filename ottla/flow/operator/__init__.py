"""The operators of the DSL as processors, each with Kafka Streams' exact semantics.

Invariant: an operator keeps nothing of its own between records but cells and stores of its task, so that a task that is
stopped and started between any two records goes on as if nothing had happened.

Read `stateless.py`, `aggregate.py`, then `view.py`: what one table asks of another.
"""
