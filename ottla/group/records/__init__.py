"""The records of `__consumer_offsets`: encoding of state (`encode*`) and replay into the state (`replay*`).

Invariant: the bytes are Apache Kafka 4.3's, and only replay changes durable state. Read `encode` beside `replay`.
"""
