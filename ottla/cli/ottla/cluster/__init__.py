"""`ottla cluster`: a cluster's nodes and health (`cluster`), and clusters of processes on this machine (`local`).

Invariant: the commands of `cluster` ask any Kafka cluster; those of `local` work on a directory of this machine.
"""
