"""What can be set on any client: `schema` reads and refuses values, `client` and `security` are the settings all
clients share.

Invariant: names and defaults are Kafka's (librdkafka's names are taken too). The settings of the producer, consumer and
share consumer stand with what they need, in `ottla.client.settings`.
"""
