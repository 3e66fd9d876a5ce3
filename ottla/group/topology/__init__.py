"""The topology of a Kafka Streams application (KIP-1071): subtopologies, tasks, and the topics they need. Pure.

Invariant: what a topology needs of the topics follows from it and the topics there are. Read `topology` first.
"""
