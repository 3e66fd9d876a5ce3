"""Python values as the text of Kafka's settings."""

from __future__ import annotations


def text_of_value(value: object) -> str:
    """A Python value as Kafka's settings write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)
