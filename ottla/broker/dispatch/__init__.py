"""From a frame to its handler, and from the handler's response to bytes.

Invariant: one lookup per request. The handler's module is imported on the first request of its API. Read `dispatch`.
"""
