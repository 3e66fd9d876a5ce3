"""Access to the active controller on whichever node it is, and the broker's lifecycle with it.

Invariant: no other part of the broker knows which node is the active controller. Read `controllers` first.
"""
