"""Observability of a node over HTTP: metrics, health and readiness, if `metrics.listener` is set.

Invariant: without that setting nothing here is imported, and requests have no extra cost. Read `endpoint` first.
"""
