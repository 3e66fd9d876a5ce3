"""A segment of a log: a file of batches, its offset and time indexes, and its aborted transactions.

Invariant: a segment's file is whole batches in offset order; indexes can be rebuilt from it at any time. Read `segment`
first.
"""
