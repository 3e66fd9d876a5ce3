"""Apache Kafka's controller alone beside ours: the same requests of brokers, the same answers and metadata records."""
