"""A cluster of nodes on this machine, each a process: `ottla.Cluster` and `ottla cluster up`.

Invariant: a cluster's whole state is in its directory (`cluster.json`, a server.properties and a log for each node), so
that any later command can continue with it. Read `plan` (the configuration of each node) first, then `local`.
"""
