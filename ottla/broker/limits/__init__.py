"""Limits: connections (`admission`), bytes and requests (`quota`), client metrics (`telemetry`).

Invariant: no work on the loop grows with what one client sends.
"""
