"""A node inside this process, for tests, notebooks and small applications: `ottla.Node`, and faults on request.

Invariant: the node is the same as with `ottla start`, on real sockets and files; faults wrap its handlers and never
change them. Read `node` first, then `faults`. The pytest fixtures are in `ottla.testing`.
"""
