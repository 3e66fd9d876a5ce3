"""What a log knows of its producers: sequences, epochs, open transactions; their snapshots and markers (KIP-98).

Invariant: the state at an offset follows from the batches before it alone, so that a snapshot plus the tail gives it
back. Read `producer` first.
"""
