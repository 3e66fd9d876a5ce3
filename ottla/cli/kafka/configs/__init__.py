"""kafka-configs and kafka-client-metrics: settings of all kinds of resources.

Invariant: output and errors are those of Apache's tools. Read `config` first.
"""
