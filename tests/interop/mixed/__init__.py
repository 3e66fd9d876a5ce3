"""Clusters whose nodes are Apache Kafka 4.3.1 and Ottla side by side, and quorums that change while they run."""
