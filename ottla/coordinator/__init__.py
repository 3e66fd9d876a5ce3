"""The common interface of all coordinators: the events and effects of their machines. Read `contract`.

Invariant: only `replay` changes a machine's durable state; `step` decides.
"""
