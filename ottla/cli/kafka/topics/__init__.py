"""kafka-topics, and what moves and leads partitions: reassignment, elections, transactions, log directories.

Invariant: nothing is changed that the words did not name. Read `topic` first.
"""
