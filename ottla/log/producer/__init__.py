"""The producer state of a log: sequences, epochs, open transactions; snapshots and markers (KIP-98).

Invariant: the state at an offset follows from the batches before it alone, so a snapshot and the batches after it
restore it. Read `producer` first.
"""
