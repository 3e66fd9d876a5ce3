"""The machine: the real clock and the real disk, behind the ports of `ottla.kernel.ports`.

Its twin is `ottla.sim`; one contract suite runs over both. Start with `disk`.
"""
