"""Kafka's perf tools, and its verifiable clients for system tests.

Invariant: the columns and the JSON are Apache's, so that scripts can parse both. Read `producer_perf` first.
"""
