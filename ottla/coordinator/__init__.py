"""The shape of every coordinator: what its machine is told, and what it wants done. Read `contract`.

Invariant: a machine changes its durable state by `replay` alone; `step` only decides.
"""
