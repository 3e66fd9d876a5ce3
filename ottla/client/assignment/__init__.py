"""The assignors that a classic group's leader runs: which member reads which partition. Pure.

Invariant: the same members and partitions give the same assignment as Apache Kafka's client. Read `assignor` first;
`rack` knows who stands near what (KIP-881), `consumer_protocol` is the bytes.
"""
