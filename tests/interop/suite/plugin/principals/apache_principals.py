"""Builders of principals that stand for Java classes of Apache Kafka's tests: entry points of their names."""

from ottla.broker.guard.plugin import AuthenticationContext


class ByListener:
    """Who comes in by the clients' listener is User:client; the others are brokers."""

    def __init__(self, settings: dict[str, str]) -> None:
        assert settings

    def build(self, context: AuthenticationContext) -> str:
        return "User:client" if context.listener == "CLIENT" else "User:broker"
