"""Who of a classic group reads which partition: the assignors a group's leader runs, pure.

Invariant: the same members and partitions give the same assignment as Apache Kafka's client. Read `assignor` first;
`rack` knows who stands near what (KIP-881), `consumer_protocol` is the bytes.
"""
