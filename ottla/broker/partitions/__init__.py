"""The partitions and logs of this node: leadership, replication, flush, cleaning, retention and moves between disks.

Invariant: a log's files are created and closed on threads; the log goes into service on the loop. Read `leadership`
first.
"""
