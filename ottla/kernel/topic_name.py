"""Which names a topic may bear."""

from __future__ import annotations

import re

from ottla.kernel.error import ErrorCode, KafkaError

NAME_LENGTH_MAX = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def is_legal_name(name: str) -> bool:
    """May a topic bear this name?"""
    return not _fault(name)


def check_name(name: str) -> None:
    """INVALID_TOPIC_EXCEPTION for a name that no topic may bear."""
    fault = _fault(name)
    if fault:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {fault}")


def may_collide(name: str) -> bool:
    """Could another name be the same in metrics, where `.` becomes `_`?"""
    return "." in name or "_" in name


def collision_name(name: str) -> str:
    """What all names that collide have in common."""
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
