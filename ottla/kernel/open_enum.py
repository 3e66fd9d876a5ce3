"""Enums for protocol numbers that newer brokers may extend."""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class OpenEnum(IntEnum):
    """An IntEnum that accepts every int: a number without a member is named UNKNOWN and keeps its value.

    One new value must not make a whole response unreadable. Iteration and `__members__` have the declared members only.
    """

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, int):
            return None
        member = int.__new__(cls, value)
        member._name_ = "UNKNOWN"
        member._value_ = value
        return member
