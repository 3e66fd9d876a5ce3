"""The coordinators of this node: each with its machine, its log, its timer and its pending requests.

Invariant: the driver appends, and `replay` changes the state. A machine whose append failed is discarded and loaded
from the log again. Read `coordinators` first, then `driver`.
"""
