"""A producer's transactions: `state` (pure) decides, `driver` sends the requests, `api` has the calls for programs.

Invariant: `state` decides every step and gets every answer; the driver retries requests only while `state` allows it.
"""
