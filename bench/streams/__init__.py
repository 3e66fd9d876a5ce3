"""Streams programs beside Kafka Streams and hand-written PySpark, on one node, in alternating rounds.

programs   the programs in Python, one lane each; as a command: one of them on Spark
spark      the same jobs written by hand in PySpark structured streaming, where possible
java/      the same topologies for Kafka Streams
system     starts any of them on topics, and reads its progress
measure    rates, latencies, recovery
steps      the requests of each step of a program, counted by the node
__main__   rounds and the report
"""
