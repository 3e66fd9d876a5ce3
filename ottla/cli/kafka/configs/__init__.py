"""kafka-configs and kafka-client-metrics: settings of everything that has them.

Invariant: what is shown and refused is what Apache's tool shows and refuses. Read `config` first.
"""
