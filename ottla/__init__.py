"""Ottla: Apache Kafka's job done in Python, for people who live in Python.

Start reading at `ottla.broker.node`; docs/ARCHITECTURE.md has the map.
"""

__version__ = "0.1.0"
