"""What a node shows of itself over HTTP: metrics, health and readiness. It is there where `metrics.listener` is set.

Invariant: without that setting nothing here is imported, and a request costs nothing more. Read `endpoint` first.
"""
