"""Checks of the arguments of public calls, before anything is done with them.

Rules:
- A wrong type raises TypeError, a wrong value ValueError or OttlaError; the message shows the value.
- A str is never treated as a list of its characters.
- A partition is a `TopicPartition` or a plain (topic, number) pair.
"""

from __future__ import annotations

import importlib.util
import operator
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, SupportsIndex, TypeVar, cast

from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition
from ottla.kernel.topic_name import is_legal_name

V = TypeVar("V")

#: Timestamps and offsets are int64 on the wire, partitions int32.
_INT64, _INT32 = 1 << 63, 1 << 31


def shown(value: object) -> str:
    """Return a value's repr for an error message, shortened to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def topic_fault(name: str) -> str | None:
    """Return why a topic cannot have this name; None if it can."""
    if not is_legal_name(name):
        return (
            f"invalid topic name: {shown(name)} (expected 1 to 249 letters, digits, '.', '_' and '-', "
            "and not '.' or '..' alone)"
        )
    return None


def topic_name(value: object) -> str:
    """Check a topic name. TypeError unless it is a str; INVALID_TOPIC_EXCEPTION if no topic can have this name."""
    if not isinstance(value, str):
        raise TypeError(f"a topic must be a str, not {type(value).__name__}: {shown(value)}")
    if fault := topic_fault(value):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
    return value


def text_of(value: object, what: str) -> str:
    """Check for a str; `what` names the argument in the TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is a str, not {type(value).__name__}: {shown(value)}")
    return value


def items_of(values: object, what: str) -> list[Any]:
    """Return the members of a collection. TypeError for a str or bytes, although they are iterable."""
    if isinstance(values, (str, bytes, bytearray, memoryview, TopicPartition)) or not isinstance(values, Iterable):
        is_single = isinstance(values, (str, bytes, TopicPartition))
        hint = f": put it into a list, [{shown(values)}]" if is_single else f": {shown(values)}"
        raise TypeError(f"expected a list of {what}, not {type(values).__name__}{hint}")
    return list(values)


def texts(values: object, what: str) -> list[str]:
    """Check for a collection of str; see `items_of`."""
    return [text_of(value, what.removesuffix("s")) for value in items_of(values, what)]


def topic_names(values: object) -> list[str]:
    """Check topic names: one str, or a collection. INVALID_TOPIC_EXCEPTION if no topic can have a name."""
    return [topic_name(value) for value in ([values] if isinstance(values, str) else items_of(values, "topics"))]


def partition_of(value: object) -> TopicPartition:
    """Return a partition from a TopicPartition or a pair. TypeError for anything else."""
    if isinstance(value, tuple) and len(value) == 2:
        topic, number = value
        if isinstance(topic, str) and isinstance(number, int) and not isinstance(number, bool):
            if not 0 <= number < _INT32:
                raise ValueError(f"invalid partition of {topic}: {number} (expected a number from 0 to 2147483647)")
            return value if isinstance(value, TopicPartition) else TopicPartition(topic, number)
    hint = ""
    if isinstance(value, str):
        hint = f": name its number too, TopicPartition({shown(value)}, 0), or subscribe to the topic"
    raise TypeError(f"a partition is a TopicPartition(topic, number), not {shown(value)}{hint}")


def partitions_of(values: object) -> list[TopicPartition]:
    """Return several partitions. TypeError for a single partition or anything else."""
    return [partition_of(value) for value in items_of(values, "partitions")]


def map_of(values: object, what: str) -> Mapping[Any, Any]:
    """Check for a mapping; `what` describes it, such as "partitions to offsets"."""
    if not isinstance(values, Mapping):
        raise TypeError(f"expected a mapping of {what}, not {type(values).__name__}: {shown(values)}")
    return values


def by_partition(values: object, what: str) -> dict[TopicPartition, Any]:
    """Return a mapping with its keys as partitions."""
    return {partition_of(key): value for key, value in map_of(values, f"partitions to {what}").items()}


def whole(value: object, what: str, at_least: int = -_INT64, below: int = _INT64) -> int:
    """Return a whole number. TypeError for a float or bool, ValueError outside the bounds."""
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        hint = f" (int({shown(value)}) truncates it)" if isinstance(value, float) else ""
        raise TypeError(f"{what} is a whole number (int), not {type(value).__name__}: {shown(value)}{hint}")
    number = operator.index(cast(SupportsIndex, value))
    if not at_least <= number < below:
        bound = f"of at least {at_least}" if number < at_least else f"below {below}"
        raise ValueError(f"invalid value for {what}: {number} (expected a whole number {bound})")
    return number


def seconds(value: object, what: str = "timeout") -> float:
    """Return a time to wait, in seconds. TypeError unless it is a number, ValueError if negative or NaN."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{what} is a number of seconds, not {type(value).__name__}: {shown(value)}")
    if not value >= 0:
        raise ValueError(f"invalid value for {what}: {value} (expected a number of seconds of at least 0)")
    return min(float(value), 4_000_000.0)


def optional_seconds(value: object) -> float | None:
    """Return a timeout as `seconds` does, or None for no limit."""
    return None if value is None else seconds(value)


#: From this value on, a whole number of seconds is more likely meant as milliseconds.
_LONG_S = 100


def wait_ms(timeout: object) -> int:
    """Convert a poll timeout from seconds to ms. Warn about an int that looks like ms, as in Java or kafka-python."""
    waits_s = seconds(timeout)
    if isinstance(timeout, int) and timeout >= _LONG_S:
        warnings.warn(
            f"poll({timeout}) waits up to {timeout} seconds: write {timeout / 1000:g} for {timeout} ms, or {timeout}.0",
            stacklevel=3,
        )
    return int(waits_s * 1000)


def needs_arrow(what: str) -> None:
    """Raise OttlaError if the extra ottla[arrow] is not installed."""
    if any(importlib.util.find_spec(name) is None for name in ("numpy", "pyarrow")):
        raise OttlaError(f"{what} needs pyarrow and numpy: pip install 'ottla[arrow]'")


def serde_of(value: object, what: str) -> None:
    """Raise TypeError unless the value is a serde or None."""
    if value is not None and not (hasattr(value, "type") and hasattr(value, "decode")):
        raise TypeError(f"{what} is a serde (ottla.serde.serde), not {type(value).__name__}: {shown(value)}")


def config_text(value: object, name: object) -> str | None:
    """Return a setting's value as text; numbers, booleans and lists become Kafka's text form."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    raise TypeError(f"setting {name} takes text, a number, a boolean or a list of texts, not {shown(value)}")


def config_texts(values: object) -> dict[str, str | None]:
    """Return a mapping of settings as text; see `config_text`."""
    return {
        text_of(name, "a setting's name"): config_text(value, name)
        for name, value in map_of(values, "settings' names to values").items()
    }
