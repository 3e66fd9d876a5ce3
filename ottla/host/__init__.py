"""The real machine's clock, disk and event loop, behind the ports of `ottla.kernel.ports`.

Its twin is `ottla.sim`; one contract test suite runs over both. Read `disk` first.
"""
