"""What everything else stands on: ids, the error table, checks of values, frozen values, and the ports to the world.

Invariant: standard library only, and no import of anything that touches the machine (no clock, file, socket or
random number). Read `ports` first: it is all that a node needs from the world.
"""
