"""A node inside this process, for tests, notebooks and small applications: `ottla.Node`, and faults on request.

Invariant: the node is the one `ottla start` runs, on real sockets and files; faults stand around its handlers, never in
them. Read `node` first, then `faults`. The pytest fixtures are `ottla.testing`.
"""
