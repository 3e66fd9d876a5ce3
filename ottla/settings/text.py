"""Python values in the text form of Kafka's settings."""

from __future__ import annotations


def text_of_value(value: object) -> str:
    """Return a Python value in the text form of Kafka's settings."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)
