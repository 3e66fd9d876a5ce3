"""Records between files, terminals and topics: the common part of `ottla produce`, `consume`, `import` and `export`.

Invariant: input, fields, templates and expressions are pure; only `read` and `write` talk to a cluster. Read `field`
first.
"""
