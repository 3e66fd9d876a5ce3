"""kafka-topics, and the tools for reassignments, leader elections, transactions and log directories.

Invariant: a tool changes only what the command line names. Read `topic` first.
"""
