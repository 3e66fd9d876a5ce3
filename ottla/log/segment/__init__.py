"""A segment of a log: a file of batches, its offset and time indexes, and its transaction index.

Invariant: a segment's file holds whole batches in offset order, and the indexes can be rebuilt from it. Read `segment`
first.
"""
