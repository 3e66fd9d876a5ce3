"""The assignors that the leader of a classic group runs: they decide which member reads which partition. Pure.

Invariant: the same members and partitions give the same assignment as Apache Kafka's client. Read `assignor` first;
`rack` handles racks (KIP-881), `consumer_protocol` encodes subscriptions and assignments.
"""
