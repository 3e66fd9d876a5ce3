"""State stores: what an operator or a user's processor keeps between records.

Invariant: a store is a view of one ordered map of bytes (`ordered.py`), in the byte order of Kafka Streams' own
stores, so that scans give Kafka Streams' order and the holder of a task's state holds nothing but bytes.

Read `ordered.py`, then `spec.py` (what a store is declared to be), then a kind: `key_value.py`, `window.py`,
`session.py`, `versioned.py`, `buffer.py` (suppress and joins with grace), `unjoined.py` (outer joins).
"""
