"""Functions of many records at once, on Arrow, pandas or polars.

    batch(lambda rows: rows["amount"] * 2, returns="double", form="pandas")

The function is given a table with the columns `key`, `timestamp` (ms) and the value: its fields under their names, or
`value` where it is no object. It may be called with any number of records, one included, and again for the same records
when one of them cannot be processed: it must look at each row alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from ottla.flow.column.kind import Type
from ottla.flow.error import TopologyError
from ottla.flow.where import here

Form = Literal["arrow", "pandas", "polars"]
_KINDS = ("long", "double", "string", "boolean", "bytes")


class BatchFunction:
    """`kind` is the type of its values, `key_kind` that of its keys (flat_map). `inputs` are the types of the keys and
    values that it is given, known when the program is built.
    """

    def __init__(self, function: Callable[[Any], Any], form: Form, kind: Type, key_kind: Type = None) -> None:
        self.function = function
        self.form = form
        self.kind = kind
        self.key_kind = key_kind
        self.inputs: tuple[Type, Type] | None = None
        #: True if it gives rows of its own (flat_map) and not one value for each record.
        self.is_flat = False

    @property
    def batch(self) -> BatchFunction:
        """What an operator that takes columns looks for."""
        return self

    @property
    def pair(self) -> tuple[Type, Type]:
        return self.key_kind, self.kind

    def compute(self, frame: Any) -> Any:
        """A value for each record, as an Arrow array."""
        from ottla.flow.vector.batch import values_of

        return values_of(self, frame)

    def flat(self, frame: Any) -> Any:
        """A frame of the rows that the function gives."""
        from ottla.flow.vector.batch import rows_of

        return rows_of(self, frame)

    def timed(self, key: Any, value: Any, timestamp: int) -> Any:
        """A record: its value, or its pairs of keys and values."""
        from ottla.flow.vector.batch import frame_of

        frame = frame_of(self, key, value, timestamp)
        if not self.is_flat:
            return self.compute(frame)[0].as_py()
        made = self.flat(frame)
        return list(zip(made.keys.to_pylist(), made.values.to_pylist(), strict=True))

    def __call__(self, key: Any, value: Any) -> Any:
        return self.timed(key, value, 0)


def batch(
    function: Callable[[Any], Any],
    *,
    returns: str | Mapping[str, str] = "boolean",
    key: str | None = None,
    form: Form = "arrow",
) -> BatchFunction:
    """A function of a table, for filter, map_values and flat_map.

    `returns` is the type of its values (long, double, string, boolean, bytes, or fields with types). For filter and
    map_values it gives one value for each row: an array, a series, a list, or a table of the fields. For flat_map it
    gives a table with the columns `row` (the index of the row that it comes from, ascending), `key` (of type `key`) and
    the value: its fields, or `value`.
    """
    where = here()
    if not callable(function):
        raise TopologyError(f"invalid function of batch: {function!r} (expected something callable)", where)
    if form not in ("arrow", "pandas", "polars"):
        raise TopologyError(f"invalid form: {form!r} (expected arrow, pandas or polars)", where)
    kind: Type = returns if isinstance(returns, str) else tuple(returns.items())
    for each in (key, kind) if isinstance(kind, str) else (key, *(one for _, one in kind or ())):
        if each is not None and each not in _KINDS:
            raise TopologyError(f"unknown type: {each!r} (expected one of {', '.join(_KINDS)})", where)
    return BatchFunction(function, form, kind, key)
