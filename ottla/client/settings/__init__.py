"""The settings of the producer, the consumer and the share consumer, with Kafka's names and defaults.

Invariant: an invalid value is refused when the client is created, with a message that says what is valid. The settings
that all clients share are in `ottla.settings.client`.
"""
