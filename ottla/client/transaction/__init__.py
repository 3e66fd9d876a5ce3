"""A producer's transactions: what it may do next (`state`, pure), who carries it out (`driver`), what programs call
(`api`).

Invariant: `state` decides every step and gets every answer; the driver repeats requests only while it says so.
"""
