"""Settings: one declaration defines the text form, the checks, the default, the dynamic mode and the documentation.

    class TopicSettings(Settings):
        retention_ms = long("retention.ms", 604_800_000, "How long segments are kept.", AtLeast(-1))

Rules:
- A settings class declares; an instance holds the typed values as attributes and is immutable.
- Text is parsed exactly as in Apache Kafka's ConfigDef: white space around a value is removed, numbers have a width.
- An invalid value raises OttlaError with the setting's name, the value and what is expected.
- Access costs one lookup in the instance's dict: a declaration is a non-data descriptor.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, ClassVar, Final, Generic, Literal, NoReturn, TypeVar, cast, overload

from ottla.kernel.error import OttlaError
from ottla.kernel.java import java_double
from ottla.kernel.named import NamedTuple
from ottla.kernel.validators import Check, whole_number

T = TypeVar("T")
S = TypeVar("S", bound="Settings")

Importance = Literal["HIGH", "MEDIUM", "LOW"]
HIGH: Final = "HIGH"
MEDIUM: Final = "MEDIUM"
LOW: Final = "LOW"

#: How a setting can change: only in the file, dynamically for one node, or also for all nodes at once (KIP-226).
Mode = Literal["read-only", "per-broker", "cluster-wide"]
READ_ONLY: Final = "read-only"
PER_BROKER: Final = "per-broker"
CLUSTER_WIDE: Final = "cluster-wide"

#: White space in Java's regular expressions.
_SPACE = " \t\n\v\f\r"
#: Possessive quantifiers: `[0-9]+\.?[0-9]*` could split thousands of digits in as many ways before it rejects them.
#: A pattern that is compiled on first use: no default needs it.
_NUMBER = r"[+-]?(NaN|Infinity|([0-9]++\.?[0-9]*+|\.[0-9]++)([eE][+-]?[0-9]++)?)[dDfF]?"


class ConfigType(IntEnum):
    """The types of Kafka's ConfigDef, with their numbers in DescribeConfigs (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class SettingSource(IntEnum):
    """The source of a value, with its number in DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    CLIENT_METRICS = 7
    GROUP = 8


class Synonym(NamedTuple):
    """A source of a setting's value: the one in effect, or one that it overrides."""

    name: str
    #: None for a secret.
    text: str | None
    source: SettingSource


class Password(str):
    """A secret; its repr is hidden."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "[hidden]"


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


#: The default of a setting that must be given.
REQUIRED: Any = _Required()

_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
_TAKES = {
    ConfigType.BOOLEAN: "true or false",
    ConfigType.SHORT: "a whole number",
    ConfigType.INT: "a whole number",
    ConfigType.LONG: "a whole number",
    ConfigType.DOUBLE: "a number",
    ConfigType.LIST: "a comma-separated list",
}


class Setting(Generic[T]):
    """A setting: its Kafka name, type, default, check and documentation.

    Created by the functions below in the body of a settings class. If the default is a server setting, a topic or group
    without a value falls back to that setting.
    """

    #: The name in the class: Kafka's, with `_` for `.`.
    attribute: str

    def __init__(
        self,
        type: ConfigType,
        name: str,
        default: Any,
        doc: str,
        check: Check | None = None,
        importance: Importance = MEDIUM,
        mode: Mode = READ_ONLY,
        *,
        broker: str | None = None,
        served: bool = True,
        internal: bool = False,
        differs: str = "",
    ) -> None:
        if isinstance(default, Setting):
            broker, default = default.name, default.default
        self.type = type
        self.name: str = name
        self.default: Any = default
        self.doc = doc
        self.check = check
        self.importance = importance
        self.mode = mode
        #: For a topic's or group's setting: the server setting that it falls back to.
        self.broker = broker
        #: False if a node reads the setting but does nothing with it.
        self.served = served
        #: True if an instance's value is computed from this and other settings.
        self.derived = False
        #: True if Kafka's documentation omits it.
        self.internal = internal
        #: The difference from Apache Kafka's setting of this name; empty if none.
        self.differs = differs

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.attribute = attribute

    @overload
    def __get__(self, instance: None, owner: type) -> Setting[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Setting[T] | T:
        if instance is None:
            return self
        # An instance's dict valid_values precedence over a descriptor without __set__, so this instance has no value.
        raise AttributeError(f"{owner.__name__} has no value for {self.name}")

    @property
    def sensitive(self) -> bool:
        """True if the value is a secret, which is never shown."""
        return self.type is ConfigType.PASSWORD

    @property
    def documentation(self) -> str:
        """The description, and a note if this node does nothing with the setting."""
        return self.doc if self.served else f"{self.doc} This node reads it but does nothing with it yet."

    @property
    def valid_values(self) -> str:
        """The valid values, as a phrase."""
        kind = _TAKES.get(self.type, "")
        if self.check is None:
            return kind or "text"
        return f"{kind}, {self.check.valid_values}" if self.type in _BITS else self.check.valid_values

    @property
    def default_text(self) -> str | None:
        """The default as Kafka writes it; None if there is none."""
        return None if self.default is REQUIRED else self.write(self.default)

    def parse(self, text: str | None) -> T:
        """Parse a value. Raise OttlaError if it has another type or fails the check."""
        value = None if text is None else self._typed(text.strip())
        if not self.accepts(value):
            self.reject(text)
        return cast(T, value)

    def accepts(self, value: object) -> bool:
        """Return True if this typed value passes the check."""
        return self.check is None or self.check.accepts(value)

    def _typed(self, text: str) -> Any:
        kind = self.type
        if kind in _BITS:
            value = whole_number(text, _BITS[kind])
            return self.reject(text) if value is None else value
        if kind is ConfigType.BOOLEAN:
            lower = text.lower()
            return lower == "true" if lower in ("true", "false") else self.reject(text)
        if kind is ConfigType.DOUBLE:
            return float(text.rstrip("dDfF")) if re.fullmatch(_NUMBER, text) else self.reject(text)
        if kind is ConfigType.LIST:
            return _split(text) if text else ()
        return Password(text) if kind is ConfigType.PASSWORD else text

    def reject(self, text: str | None) -> NoReturn:
        """Raise the error for an invalid value."""
        shown = "[hidden]" if self.sensitive else text
        raise OttlaError(
            f"invalid value for {self.name}: {'' if shown is None else shown} (expected {self.valid_values})"
        )

    def write(self, value: object) -> str | None:
        """Return a typed value as Kafka writes it; `parse` reads it back."""
        if value is None:
            return None
        if value is True or value is False:
            return "true" if value else "false"
        if isinstance(value, (tuple, list)):
            return ",".join(value)
        if isinstance(value, float):
            return java_double(value)
        return str(value)

    def __repr__(self) -> str:
        return f"Setting({self.name})"


@overload
def boolean(name: str, default: bool | Setting[bool], doc: str, *rest: Any, **more: Any) -> Setting[bool]: ...
@overload
def boolean(name: str, default: None, doc: str, *rest: Any, **more: Any) -> Setting[bool | None]: ...
def boolean(name: str, default: Any, doc: str, *rest: Any, **more: Any) -> Setting[Any]:
    """Declare a true or false setting."""
    return Setting(ConfigType.BOOLEAN, name, default, doc, *rest, **more)


@overload
def integer(name: str, default: int | Setting[int], doc: str, *rest: Any, **more: Any) -> Setting[int]: ...
@overload
def integer(name: str, default: None, doc: str, *rest: Any, **more: Any) -> Setting[int | None]: ...
def integer(name: str, default: Any, doc: str, *rest: Any, **more: Any) -> Setting[Any]:
    """Declare a setting with a 32-bit integer."""
    return Setting(ConfigType.INT, name, default, doc, *rest, **more)


def short(name: str, default: int, doc: str, *rest: Any, **more: Any) -> Setting[int]:
    """Declare a setting with a 16-bit integer."""
    return Setting(ConfigType.SHORT, name, default, doc, *rest, **more)


@overload
def long(name: str, default: int | Setting[int], doc: str, *rest: Any, **more: Any) -> Setting[int]: ...
@overload
def long(name: str, default: None, doc: str, *rest: Any, **more: Any) -> Setting[int | None]: ...
def long(name: str, default: Any, doc: str, *rest: Any, **more: Any) -> Setting[Any]:
    """Declare a setting with a 64-bit integer."""
    return Setting(ConfigType.LONG, name, default, doc, *rest, **more)


def double(name: str, default: float | Setting[float], doc: str, *rest: Any, **more: Any) -> Setting[float]:
    """Declare a setting with a floating-point number."""
    return Setting(ConfigType.DOUBLE, name, default, doc, *rest, **more)


@overload
def string(name: str, default: str | Setting[str], doc: str, *rest: Any, **more: Any) -> Setting[str]: ...
@overload
def string(name: str, default: None, doc: str, *rest: Any, **more: Any) -> Setting[str | None]: ...
def string(name: str, default: Any, doc: str, *rest: Any, **more: Any) -> Setting[Any]:
    """Declare a text setting."""
    return Setting(ConfigType.STRING, name, default, doc, *rest, **more)


@overload
def class_name(name: str, default: str, doc: str, *rest: Any, **more: Any) -> Setting[str]: ...
@overload
def class_name(name: str, default: None, doc: str, *rest: Any, **more: Any) -> Setting[str | None]: ...
def class_name(name: str, default: Any, doc: str, *rest: Any, **more: Any) -> Setting[Any]:
    """Declare a setting with the name of a Java class."""
    return Setting(ConfigType.CLASS, name, default, doc, *rest, **more)


def password(name: str, default: None, doc: str, *rest: Any, **more: Any) -> Setting[Password | None]:
    """Declare a secret."""
    return Setting(ConfigType.PASSWORD, name, default, doc, *rest, **more)


@overload
def listing(
    name: str, default: tuple[str, ...] | Setting[tuple[str, ...]], doc: str, *rest: Any, **more: Any
) -> Setting[tuple[str, ...]]: ...
@overload
def listing(name: str, default: None, doc: str, *rest: Any, **more: Any) -> Setting[tuple[str, ...] | None]: ...
def listing(name: str, default: Any, doc: str, *rest: Any, **more: Any) -> Setting[Any]:
    """Declare a list, separated by commas."""
    return Setting(ConfigType.LIST, name, default, doc, *rest, **more)


def derived(setting: Setting[Any]) -> Any:
    """Mark a setting whose value on an instance is computed; its type is that of the class annotation."""
    setting.derived = True
    return setting


class Layer(NamedTuple):
    """The text values of one source."""

    source: SettingSource
    texts: Mapping[str, str]


class Settings:
    """Immutable values of the declared settings. Created by a class method of the subclass."""

    #: The name for these settings in error messages.
    kind: ClassVar[str] = "setting"

    _declared: ClassVar[Mapping[str, Setting[Any]]]
    _defaults: ClassVar[Mapping[str, Any]]

    #: The layers of text, highest precedence first; defaults come last.
    _layers: tuple[Layer, ...]
    #: Kafka's name -> the typed value before derivation.
    _given: dict[str, Any]

    def __init__(self, layers: tuple[Layer, ...]) -> None:
        declared = type(self).declared()
        given: dict[str, Any] = {}
        for layer in reversed(layers):
            for name, text in layer.texts.items():
                if (setting := declared.get(name)) is not None:
                    given[name] = setting.parse(text)
        values = self.__dict__
        values.update(self._default_values())
        for name, value in given.items():
            values[declared[name].attribute] = value
        values["_layers"] = layers
        values["_given"] = given

    @classmethod
    def declared(cls) -> Mapping[str, Setting[Any]]:
        """Return all settings by Kafka's name, sorted by name."""
        if "_declared" not in cls.__dict__:
            cls._declared = _collect(cls)
        return cls._declared

    @classmethod
    def _default_values(cls) -> Mapping[str, Any]:
        if "_defaults" not in cls.__dict__:
            cls._defaults = {setting.attribute: setting.default for setting in cls.declared().values()}
        return cls._defaults

    def source_of(self, name: str) -> SettingSource:
        """Return the source of this setting's value."""
        synonyms = self.synonyms(name)
        return synonyms[0].source if synonyms else SettingSource.DEFAULT

    def synonyms(self, name: str) -> list[Synonym]:
        """Return all sources with a value, the one in effect first; empty if there is no value."""
        setting = self.declared()[name]
        layers = [layer for layer in self._layers if name in layer.texts]
        sources = [Synonym(name, None if setting.sensitive else layer.texts[name], layer.source) for layer in layers]
        default = setting.default_text
        return sources if default is None else [*sources, Synonym(name, default, SettingSource.DEFAULT)]

    def given(self, name: str) -> bool:
        """Return True if the setting was set, False if it has its default."""
        return name in self._given

    def text(self, name: str) -> str | None:
        """Return the value in effect as Kafka writes it; None for a secret or a setting without a value."""
        setting = self.declared()[name]
        if setting.sensitive:
            return None
        value = self._given.get(name, setting.default)
        return None if value is REQUIRED else setting.write(value)

    def __setattr__(self, attribute: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable; create a new one")

    def __iter__(self) -> Iterator[str]:
        return iter(self.declared())

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={self.text(name)}" for name in sorted(self._given))
        return f"{type(self).__name__}({given})"


def _collect(cls: type[Settings]) -> Mapping[str, Setting[Any]]:
    values = (value for base in reversed(cls.__mro__) for value in vars(base).values())
    declared = {value.name: value for value in values if isinstance(value, Setting)}
    return {name: declared[name] for name in sorted(declared)}


def refusal(setting: Setting[Any], value: str | None) -> str:
    """Return the message for an invalid value, which begins like Kafka's."""
    return f"Invalid value {value} for configuration {setting.name}: expected {setting.valid_values}"


def nearest(name: str, names: Mapping[str, Any]) -> str:
    """Return a suggestion to append to the error for an unknown name, if one of `names` is close; empty otherwise."""
    from difflib import get_close_matches

    close = get_close_matches(name, names, n=1, cutoff=0.75)
    return f"; did you mean {close[0]}?" if close else ""


def _split(text: str) -> tuple[str, ...]:
    r"""Split at `\s*,\s*` like Java, but in linear time, because clients send these texts."""
    first, *rest = text.split(",")
    if not rest:
        return (text,)
    *middle, last = rest
    return (first.rstrip(_SPACE), *(part.strip(_SPACE) for part in middle), last.lstrip(_SPACE))
