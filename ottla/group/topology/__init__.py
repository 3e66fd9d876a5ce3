"""The topology of a Kafka Streams application (KIP-1071): subtopologies, tasks and required topics. Pure.

Invariant: the required topics and their partition counts follow from the topology and the existing topics. Read
`topology` first.
"""
