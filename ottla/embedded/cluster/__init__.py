"""A cluster of nodes on this machine, each a process: `ottla.Cluster` and `ottla cluster up`.

Invariant: everything that is known of a cluster stands in its directory (`cluster.json`, a server.properties and a log
for each node), so that any later command can go on with it. Read `plan` (what each node is), then `local`.
"""
