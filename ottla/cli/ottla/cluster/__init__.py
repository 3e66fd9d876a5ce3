"""`ottla cluster`: nodes and health of a cluster (`cluster`), and local clusters of processes (`local`).

Invariant: the commands of `cluster` ask any Kafka cluster; those of `local` work on a local directory.
"""
