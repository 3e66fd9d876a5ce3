"""State stores: the state that operators and custom processors keep between records.

Invariant: a store is a view of one ordered map of bytes (`ordered.py`), in the byte order of Kafka Streams' own
stores. So scans return entries in Kafka Streams' order, and a task's state is nothing but bytes.

Read `ordered.py`, then `spec.py` (the declaration of a store), then a kind: `key_value.py`, `window.py`,
`duplicates.py`, `session.py`, `versioned.py`, `buffer.py` (suppress and joins with grace), `unjoined.py` (outer joins).
"""
