"""The records of `__consumer_offsets`: from state to bytes (`encode*`), and what each does to the state (`replay*`).

Invariant: bytes are Apache Kafka 4.3's, and `replay` is the only way that state changes. Read `encode` beside `replay`.
"""
