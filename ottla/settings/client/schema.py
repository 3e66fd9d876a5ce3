"""Declaring, parsing and rejecting client settings. Shared settings are in `client`, the rest in
`ottla.client.settings`.

Rules:
- A setting has Kafka's name (`bootstrap.servers`); as a keyword argument and attribute, the same in snake_case.
- A value is text, as in Kafka's properties files, or the Python value itself.
- The error for an unknown name suggests the closest one; the error for an invalid value says what is expected.
- Settings are immutable.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ottla.kernel.error import OttlaError
from ottla.settings.schema import ConfigType, Setting

#: The first argument of a client: `"host:9092"`, `["a:9092", "b:9092"]` or `{"bootstrap.servers": ...}`.
Given = str | Sequence[str] | Mapping[str, object] | None


class Reader:
    """Converts a caller's value to the typed value: text, as in Kafka's properties files, or the value itself.

    Called with a value; raises ValueError or TypeError, whose message is what is expected.
    """

    __slots__ = ("read", "type")

    def __init__(self, type: ConfigType, read: Callable[[object], Any]) -> None:
        self.type = type
        self.read = read

    def __call__(self, value: object) -> Any:
        return self.read(value)


def reads(type: ConfigType) -> Callable[[Callable[[object], Any]], Reader]:
    """Turn a function into a reader for settings of this type."""
    return lambda read: Reader(type, read)


class ClientSetting(Setting[Any]):
    """A client's setting: like a server's, but with a reader, which also accepts Python values, for the check."""

    def __init__(self, name: str, default: object, reader: Reader, doc: str, differs: str) -> None:
        super().__init__(reader.type, name, default, doc, differs=differs)
        self.attribute = name.replace(".", "_")
        self.read = reader

    def parsed(self, value: object) -> Any:
        """The typed value. OttlaError if the setting does not take it."""
        try:
            return self.read(value)
        except (ValueError, TypeError) as error:
            shown = "..." if self.sensitive else repr(value)
            raise OttlaError(f"invalid value for {self.name}: {shown} (expected {error})") from None

    @property
    def valid_values(self) -> str:
        """The valid values, as in the error for an invalid one."""
        try:
            self.read(_Nothing())
        except (ValueError, TypeError) as error:
            return str(error)
        return "any value"


class _Nothing:
    """A value that no setting accepts."""


def setting(name: str, default: object, reader: Reader, doc: str, *, differs: str = "") -> Any:
    """Declare a setting; its annotation is the type of the parsed value."""
    return ClientSetting(name, default, reader, doc, differs)


S = TypeVar("S", bound="DeclaredSettings")


class DeclaredSettings:
    """The values of declared settings. Subclasses declare settings and may override `check`."""

    declared: Mapping[str, ClientSetting] = {}
    #: The caller's values, by attribute.
    given: Mapping[str, object] = {}

    def __init_subclass__(cls) -> None:
        declared = dict(cls.declared)
        for value in list(vars(cls).values()):
            if isinstance(value, ClientSetting):
                declared[value.attribute] = value
                delattr(cls, value.attribute)
        cls.declared = declared

    @classmethod
    def read(cls: type[S], given: Given, keywords: Mapping[str, object]) -> S:
        """Parse a client's arguments. Raise OttlaError for an unknown name or an invalid value."""
        merged: dict[str, object] = {}
        if isinstance(given, (str, list, tuple)):
            merged["bootstrap_servers"] = given
        elif isinstance(given, Mapping):
            for name, value in given.items():
                if not isinstance(name, str):
                    raise TypeError(f"a setting's name is a str, not {type(name).__name__}: {name!r}")
                merged[name.replace(".", "_")] = value
        elif given is not None:
            expected = "host:port, a list of these, or a mapping of settings"
            raise TypeError(f"a client takes {expected}, not {type(given).__name__}: {given!r}")
        merged.update((name.replace(".", "_"), value) for name, value in keywords.items())
        settings = cls()
        object.__setattr__(settings, "given", merged)
        for attribute, setting in cls.declared.items():
            object.__setattr__(settings, attribute, setting.default)
        for attribute, value in merged.items():
            declared = cls.declared.get(attribute)
            if declared is None:
                raise OttlaError(_unknown(attribute, cls))
            object.__setattr__(settings, attribute, declared.parsed(value))
        settings.check(frozenset(merged))
        return settings

    def check(self, given: frozenset[str]) -> None:
        """Check constraints between settings; `given` are the attributes that the caller set."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"settings are immutable ({name})")

    def __repr__(self) -> str:
        changed = [
            f"{setting.name}={getattr(self, attribute)!r}"
            for attribute, setting in self.declared.items()
            if getattr(self, attribute) != setting.default and not setting.sensitive
        ]
        return f"{type(self).__name__}({', '.join(changed)})"


def _unknown(attribute: str, cls: type[DeclaredSettings]) -> str:
    near = difflib.get_close_matches(attribute, cls.declared, n=1, cutoff=0.6)
    name = attribute.replace("_", ".")
    kind = cls.__name__.removesuffix("Settings").lower()
    if near:
        return f"there is no {kind} setting {name}; did you mean {cls.declared[near[0]].name}?"
    return f"there is no {kind} setting {name}: these are {', '.join(sorted(d.name for d in cls.declared.values()))}"


def integer(at_least: int | None = None, at_most: int | None = None) -> Reader:
    """Return a reader of 32-bit integers."""
    return _whole(ConfigType.INT, 32, at_least, at_most)


def long(at_least: int | None = None, at_most: int | None = None) -> Reader:
    """Return a reader of 64-bit integers."""
    return _whole(ConfigType.LONG, 64, at_least, at_most)


def _whole(type: ConfigType, bits: int, at_least: int | None, at_most: int | None) -> Reader:
    expected = "a whole number"
    if at_least is not None:
        expected += f" of at least {at_least}"
    if at_most is not None:
        expected += f"{' and' if at_least is not None else ''} at most {at_most}"

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            raise ValueError(expected)
        try:
            number = int(value)
        except ValueError:
            raise ValueError(expected) from None
        if (at_least is not None and number < at_least) or (at_most is not None and number > at_most):
            raise ValueError(expected)
        if not -1 << (bits - 1) <= number < 1 << (bits - 1):
            raise ValueError(f"{expected}, of {bits} bits")
        return number

    return Reader(type, read)


@reads(ConfigType.BOOLEAN)
def flag(value: object) -> bool:
    """Read true or false."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ValueError("true or false")


@reads(ConfigType.STRING)
def text(value: object) -> str:
    """Read text."""
    if not isinstance(value, str):
        raise ValueError("text")
    return value


@reads(ConfigType.STRING)
def optional_text(value: object) -> Any:
    """Read text or None."""
    return None if value is None else text(value)


#: Text that is never shown: a password, a key, a token.
secret = Reader(ConfigType.PASSWORD, optional_text)
#: A Python object, used as is.
anything = Reader(ConfigType.CLASS, lambda value: value)


def one_of(*names: str) -> Reader:
    """Return a reader of one of these words, case-insensitive."""

    def read(value: object) -> str:
        for name in names:
            if isinstance(value, str) and value.lower() == name.lower():
                return name
        raise ValueError(f"one of {', '.join(names)}")

    return Reader(ConfigType.STRING, read)


@reads(ConfigType.LIST)
def addresses(value: object) -> list[tuple[str, int]]:
    """Read `host:port`, several separated by commas or as a list. IPv6 addresses are in brackets."""
    expected = "host:port entries, comma-separated"
    parts = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, (list, tuple)) else []
    pairs = []
    for part in parts:
        host, separator, port = str(part).strip().rpartition(":")
        host = host.rpartition("://")[2].strip("[]")
        if not separator or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(expected)
        pairs.append((host, int(port)))
    if not pairs:
        raise ValueError(expected)
    return pairs
