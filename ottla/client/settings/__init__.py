"""The settings of the producer, the consumer and the share consumer, with Kafka's names and defaults.

Invariant: a wrong value is refused when the client is made, with what would fit. What all clients share is in
`ottla.settings.client`.
"""
