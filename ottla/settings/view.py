"""The settings that one machine needs, as plain values: names and defaults are those of the server's declarations.

@frozen
class TransactionSettings(SettingsView, of=(TransactionDeclaration,)):
transaction_max_timeout_ms: int = AS_DECLARED

TransactionSettings.of(server), TransactionSettings(), TransactionSettings(transaction_max_timeout_ms=1000)
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar, TypeVar

V = TypeVar("V", bound="SettingsView")

#: The default that the setting's declaration has.
AS_DECLARED: Any = object()


class SettingsView:
    """Base of the views. `of` names the classes that declare, `prefix` what a setting's name has before the field's."""

    __slots__ = ()

    _prefix: ClassVar[str] = ""

    def __init_subclass__(cls, of: tuple[type, ...] = (), prefix: str = "") -> None:
        if of:
            cls._prefix = prefix
        for name, value in list(vars(cls).items()):
            if value is AS_DECLARED:
                declaration = next(each for each in of if hasattr(each, prefix + name))
                setattr(cls, name, getattr(declaration, prefix + name).default)

    @classmethod
    def of(cls: type[V], server: Any) -> V:
        """The values in force, from an object that has all of the server's settings."""
        return cls(**{each.name: getattr(server, cls._prefix + each.name) for each in fields(cls)})  # type: ignore[arg-type]
