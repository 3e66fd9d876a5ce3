"""The producer: records into batches, batches to leaders.

Invariant: records of a partition leave in the order of their sends, and every record's future ends exactly once. Read
`producer` first, then `accumulator` and `sender`; `sync` is the face for code that does not await.
"""
