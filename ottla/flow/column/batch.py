"""Batch functions: functions of many records at once, on Arrow, pandas or polars.

    batch(lambda rows: rows["amount"] * 2, returns="double", form="pandas")

The function gets a table with the columns `key`, `timestamp` (ms) and the value: the fields of an object under their
names, any other value as `value`. It may be called with any number of records, including one, and again for the same
records when one of them cannot be processed. So it must treat each row independently.

A joiner's table has the columns `key`, `left` and `right`, or for objects their fields, as `left.amount`.
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
    """A function of a table of records, made by `batch`.

    `kind` is the type of its results, `key_kind` that of their keys (flat_map). `inputs` are the types of its input
    keys and values, set when the program is built.
    """

    def __init__(self, function: Callable[[Any], Any], form: Form, kind: Type, key_kind: Type = None) -> None:
        self.function = function
        self.form = form
        self.kind = kind
        self.key_kind = key_kind
        self.inputs: tuple[Type, Type] | None = None
        #: Whether it returns rows of its own (flat_map) instead of one value per record.
        self.is_flat = False

    @property
    def batch(self) -> BatchFunction:
        """The batch function of an operator (vector/region.py)."""
        return self

    @property
    def pair(self) -> tuple[Type, Type]:
        return self.key_kind, self.kind

    def compute(self, frame: Any) -> Any:
        """A value for each record, as an Arrow array."""
        from ottla.flow.vector.batch import values_of

        return values_of(self, frame)

    def flat(self, frame: Any) -> Any:
        """The rows that the function returns, as a frame."""
        from ottla.flow.vector.batch import rows_of

        return rows_of(self, frame)

    def timed(self, key: Any, value: Any, timestamp: int) -> Any:
        """The result for one record: a value, or (key, value) pairs."""
        from ottla.flow.vector.batch import frame_of

        frame = frame_of(self, key, value, timestamp)
        if not self.is_flat:
            return self.compute(frame)[0].as_py()
        rows = self.flat(frame)
        return list(zip(rows.keys.to_pylist(), rows.values.to_pylist(), strict=True))

    def __call__(self, key: Any, value: Any) -> Any:
        return self.timed(key, value, 0)


class JoinBatch:
    """A batch function as a joiner. `inputs` are the types of key, left and right value, set when the program is
    built.
    """

    def __init__(self, function: BatchFunction) -> None:
        self.function = function
        self.inputs: tuple[Type, Type, Type] = (None, None, None)

    @property
    def kind(self) -> Type:
        """The type of its results."""
        return self.function.kind

    def compute(self, frame: Any, right: Any) -> Any:
        """The result for each record of a frame, whose values are the left ones, as an Arrow array."""
        from ottla.flow.vector.batch import joined_of

        return joined_of(self.function, frame, right)

    def __call__(self, key: Any, left: Any, right: Any) -> Any:
        from ottla.flow.vector.batch import joined_one

        return joined_one(self, key, left, right)


def batch(
    function: Callable[[Any], Any],
    *,
    returns: str | Mapping[str, str] = "boolean",
    key: str | None = None,
    form: Form = "arrow",
) -> BatchFunction:
    """Declare a function of a table, for filter, filter_not, map_values, flat_map, and joins of a stream.

    `form` is the kind of table that the function gets: arrow, pandas or polars. `returns` is the type of its values:
    long, double, string, boolean, bytes, or a mapping of field names to these. Except for flat_map the function
    returns one value per row: an array, a series, a list, or a table of the fields. For flat_map it returns a table
    with the columns `row` (the index of the input row, ascending), `key` (of type `key`) and the value: its fields, or
    `value`. TopologyError if an argument is invalid.
    """
    where = here()
    if not callable(function):
        raise TopologyError(f"invalid function for batch: {function!r} (expected a callable)", where)
    if form not in ("arrow", "pandas", "polars"):
        raise TopologyError(f"invalid form: {form!r} (expected arrow, pandas or polars)", where)
    kind: Type = returns if isinstance(returns, str) else tuple(returns.items())
    for name in (key, kind) if isinstance(kind, str) else (key, *(field_type for _, field_type in kind or ())):
        if name is not None and name not in _KINDS:
            raise TopologyError(f"unknown type: {name!r} (expected one of {', '.join(_KINDS)})", where)
    return BatchFunction(function, form, kind, key)
