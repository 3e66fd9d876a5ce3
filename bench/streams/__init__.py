"""Streams programs beside Kafka Streams and hand-written PySpark, on one node, in alternating rounds.

programs   the programs in Python, a lane each; as a command: one of them on Spark
spark      the same jobs by hand in PySpark structured streaming, where they can be written
java/      the same topologies for Kafka Streams
system     starting any of them on topics, and reading how far it is
measure    rates, latencies, recovery
steps      the requests of each step of a program, counted by the node
__main__   rounds and the report
"""
