"""Client settings: `schema` parses and rejects values; `client` and `security` are the settings that all clients share.

Invariant: names and defaults are Kafka's (some of librdkafka's names work too). The settings of the producer, consumer
and share consumer are in `ottla.client.settings`.
"""
