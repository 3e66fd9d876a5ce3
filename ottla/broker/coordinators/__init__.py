"""The coordinators of this node: each machine on its log, its timer, and the requests that wait for it.

Invariant: the driver appends, `replay` changes the state; a machine whose append failed is thrown away and loaded
again. Read `coordinators` first, then `driver`.
"""
