"""kafka-server-start and -stop, kafka-storage, kafka-cluster, kafka-broker-api-versions: nodes and clusters as such.

Invariant: a node is started as `ottla start` starts it. Read `server_start` first.
"""
