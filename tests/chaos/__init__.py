"""Chaos on real processes: three nodes in network namespaces, real clients, faults by a seed, judged by the checker.

`make chaos MINUTES=5 SEED=1 NODES=ottla` (or apache). Needs root, iproute2, nftables and libfaketime. The clients and
the checker are those of the simulated world (`ottla/sim`); the nodes are processes, of Ottla or of Apache Kafka.
"""
