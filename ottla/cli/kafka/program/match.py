"""Kafka's include lists, which select topics."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from ottla.cli.kafka.program.tool import Failed


def topic_filter(text: str | None) -> Callable[[str], bool]:
    """Return the test of an include list: a regular expression in which a comma is "or" and blanks are ignored."""
    if text is None:
        return lambda name: True
    expression = pattern(text.strip().replace(",", "|").replace(" ", "").strip("\"'"), text)
    return lambda name: expression.fullmatch(name) is not None


def pattern(text: str, typed: str | None = None) -> re.Pattern[str]:
    """Compile a regular expression. Failed, with the text as it was typed, if it is none."""
    try:
        return re.compile(text)
    except re.error as error:
        raise Failed(f"{typed or text} is an invalid regex.") from error


def chosen(names: Iterable[str], text: str | None) -> list[str]:
    """Return the names that match an include list, sorted."""
    takes = topic_filter(text)
    return sorted(name for name in names if takes(name))
