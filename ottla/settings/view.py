"""The settings that one machine needs, as plain values, with the names and defaults of the server's declarations.

@frozen
class TransactionSettings(SettingsView, of=(TransactionDeclaration,)):
    transaction_max_timeout_ms: int = AS_DECLARED

TransactionSettings.of(server), TransactionSettings(), TransactionSettings(transaction_max_timeout_ms=1000)
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar, TypeVar

V = TypeVar("V", bound="SettingsView")

#: The default of the setting's declaration.
AS_DECLARED: Any = object()


class SettingsView:
    """The base of the views. `of` are the declaring classes; a setting's name is `prefix` plus the field's name."""

    __slots__ = ()

    _prefix: ClassVar[str] = ""

    def __init_subclass__(cls, of: tuple[type, ...] = (), prefix: str = "") -> None:
        if of:
            cls._prefix = prefix
        for name, value in list(vars(cls).items()):
            if value is AS_DECLARED:
                declaration = next(declaring for declaring in of if hasattr(declaring, prefix + name))
                setattr(cls, name, getattr(declaration, prefix + name).default)

    @classmethod
    def of(cls: type[V], server: Any) -> V:
        """Return the values in effect from an object with all server settings."""
        return cls(**{field.name: getattr(server, cls._prefix + field.name) for field in fields(cls)})  # type: ignore[arg-type]
