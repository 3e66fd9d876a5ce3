"""From a frame to its handler, and from the handler's reply to bytes.

Invariant: one lookup a request; the handler's module is imported on the first request of its API. Read `dispatch`.
"""
