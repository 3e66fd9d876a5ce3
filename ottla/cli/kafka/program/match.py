"""Which topics a tool means: Kafka's include lists, and patterns of topics and partitions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from ottla.cli.kafka.program.tool import Failed


def topic_filter(text: str | None) -> Callable[[str], bool]:
    """Does a name match an include list: an expression in which a comma is "or" and blanks do not count?"""
    if text is None:
        return lambda name: True
    expression = text.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        pattern = re.compile(expression)
    except re.error as error:
        raise Failed(f"{text} is an invalid regex.") from error
    return lambda name: pattern.fullmatch(name) is not None


def chosen(names: Iterable[str], text: str | None) -> list[str]:
    """The names that an include list takes, in order."""
    takes = topic_filter(text)
    return sorted(name for name in names if takes(name))
