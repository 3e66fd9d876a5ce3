"""The base of everything else: ids, the error table, validators, frozen values, and the ports to the outside world.

Invariant: standard library only, and no import of anything that touches the machine (no clock, file, socket or
random number). Read `ports` first: it is everything that a node needs from outside.
"""
