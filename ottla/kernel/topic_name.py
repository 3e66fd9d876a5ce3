"""The rules for topic names."""

from __future__ import annotations

import re

from ottla.kernel.error import ErrorCode, KafkaError

NAME_LENGTH_MAX = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def is_legal_name(name: str) -> bool:
    """Return True if a topic may have this name."""
    return not _fault(name)


def check_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION if no topic may have this name."""
    fault = _fault(name)
    if fault:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {fault}")


def may_collide(name: str) -> bool:
    """Return True if another name could collide in metrics, where `.` becomes `_`."""
    return "." in name or "_" in name


def collision_name(name: str) -> str:
    """Return the form that all colliding names share."""
    return name.replace(".", "_")


def _fault(name: str) -> str:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > NAME_LENGTH_MAX:
        return f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    if not _LEGAL.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return ""
