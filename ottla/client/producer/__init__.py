"""The producer: records into batches, batches to leaders.

Invariant: a partition's records are sent in the order of their `send` calls, and every record's future completes
exactly once. Read `producer` first, then `accumulator` and `sender`; `sync` is the synchronous client.
"""
