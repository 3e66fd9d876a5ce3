"""Limits: connections (`admission`), bytes and requests (`quota`), clients' metrics (`telemetry`).

Invariant: nothing that runs on the loop grows with what one client sends.
"""
