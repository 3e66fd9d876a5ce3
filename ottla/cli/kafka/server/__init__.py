"""kafka-server-start and -stop, kafka-storage, kafka-cluster, kafka-broker-api-versions: tools for nodes and clusters.

Invariant: a node is started in the same way as by `ottla start`. Read `server_start` first.
"""
