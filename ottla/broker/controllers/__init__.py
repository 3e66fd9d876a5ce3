"""The way to the active controller, wherever it is, and the broker's life as the controller sees it.

Invariant: no other part of the broker knows which node the active controller is. Read `controllers` first.
"""
