"""Authorization: a guard around each handler, if the node has an authorizer.

Invariant: an API without a guard is refused, and a node without an authorizer imports nothing of this. Read `guards`,
the table, then `parts`.
"""
