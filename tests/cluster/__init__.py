"""Tests of the metadata: the image, the controller's commands, the log on disk, and Apache Kafka as the referee."""
