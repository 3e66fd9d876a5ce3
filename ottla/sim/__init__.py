"""The other host: a clock and a disk that live in memory and misbehave by a seed. One seed is one history.

Invariant: the simulated ports pass the same contract suite as the machine's (`tests/sim/test_disk_contract.py`); what
they add is what may go wrong. Start with `disk`.
"""
