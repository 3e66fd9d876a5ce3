"""Enums for numbers of the protocol that newer brokers may know more of."""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class OpenEnum(IntEnum):
    """An IntEnum that takes every int: a number without a member is named UNKNOWN and stays itself.

    One new value in an answer must not end the whole answer. Iteration and `__members__` have the members alone.
    """

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, int):
            return None
        found = int.__new__(cls, value)
        found._name_ = "UNKNOWN"
        found._value_ = value
        return found
