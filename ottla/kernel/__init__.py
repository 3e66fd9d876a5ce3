"""What everything else stands on: names, the error table, declared settings, and the ports to the world.

Invariant: standard library only, and no import of anything that touches the machine (no clock, file, socket or
random number). Read `port` first: it is all that a node needs from the world.
"""
