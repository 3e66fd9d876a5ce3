"""Protobuf to typed columns and back with ptars, which parses into Arrow arrays without message objects.

Rules:
- The columns are the message's fields, with ptars' types: well-known timestamps are Arrow timestamps, enums are
  numbers, and a missing field without presence has its default. Of several members of a oneof, the last one counts.
- Confluent's wire format puts a zero byte, four bytes of schema id and the message's index path before the message.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.columns.column import gather
from ottla.columns.encode_columns import offsets_of
from ottla.columns.field import as_bytes, varints
from ottla.kernel.error import KafkaError, OttlaError
from ottla.serde.confluent import PREFIX_BYTES, prefix
from ottla.serde.protobuf_oneof import has_choices, with_last_members
from ottla.serde.protobuf_zero import with_negative_zeros
from ottla.serde.serde import Errors, Serde, check_distinct, spread
from ottla.serde.serializer_protobuf import place_of


class Protobuf(Serde):
    """Protobuf messages of one type."""

    def __init__(self, message: Any, errors: Errors, *, confluent: bool, schema_id: int | None = None) -> None:
        try:
            from ptars import HandlerPool
        except ImportError as error:
            raise OttlaError("Protobuf columns need ptars: pip install 'ottla[protobuf]'") from error
        descriptor = getattr(message, "DESCRIPTOR", message)
        if not hasattr(descriptor, "fields_by_name"):
            raise OttlaError(f"invalid Protobuf message: {message!r} (expected a message class or its descriptor)")
        self.errors = errors
        self._confluent = confluent
        self._descriptor = descriptor
        self._chooses = has_choices(descriptor)
        self._prefix = b"" if schema_id is None else prefix(schema_id, place_of(descriptor))
        self._handler = HandlerPool([descriptor.file]).get_for_message(descriptor)
        self.type = pa.struct(list(self._handler.array_to_record_batch(pa.array([], pa.binary())).schema))

    def decode(self, values: Any) -> Any:
        present = values.drop_null() if values.null_count else values
        if not len(present):
            return pa.nulls(len(values), self.type)
        messages = _without_prefix(present) if self._confluent else present
        structs = self._structs(messages)
        if self._chooses:
            structs = with_last_members(structs, messages, self._descriptor, self._structs)
        return structs if len(present) == len(values) else spread(structs, values)

    def _structs(self, messages: Any) -> Any:
        return self._handler.array_to_record_batch(messages).to_struct_array()

    def encode(self, column: Any) -> Any:
        if self._confluent and not self._prefix:
            raise OttlaError("writing Confluent's wire format needs schema_id, the schema's id in the registry")
        present = column.drop_null() if column.null_count else column
        check_names(present.type, self.type)
        try:
            rows = pa.RecordBatch.from_struct_array(present.cast(self.type))
        except pa.ArrowException as error:
            name = self._descriptor.full_name
            raise OttlaError(f"the columns do not fit the Protobuf message {name}: {error}") from None
        written = self._handler.record_batch_to_array(rows).cast(pa.binary())
        written = with_negative_zeros(written, rows.to_struct_array(), self._descriptor)
        if self._prefix:
            nothing = pa.scalar(b"", pa.binary())
            written = pc.binary_join_element_wise(pa.scalar(self._prefix, pa.binary()), written, nothing)
        return written if len(present) == len(column) else spread(written, column)


def check_names(given: Any, wanted: Any, where: str = "the value") -> None:
    """Check that each column is a field of the message: Arrow's cast would drop another one."""
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        names = [field.name for field in given]
        known = {field.name: field.type for field in wanted}
        if unknown := set(names) - known.keys():
            raise OttlaError(f"{where}: the Protobuf message has no field {min(unknown)}")
        check_distinct(names, where)
        for field in given:
            check_names(field.type, known[field.name], f"field {field.name}")
    elif pa.types.is_list(given) and pa.types.is_list(wanted):
        check_names(given.value_type, wanted.value_type, where)
    elif pa.types.is_map(given) and pa.types.is_map(wanted):
        check_names(given.item_type, wanted.item_type, where)


def _without_prefix(values: Any) -> Any:
    """The messages without their prefixes."""
    edges = offsets_of(values).astype(np.int64)
    buffer = values.buffers()[2]
    data = as_bytes(buffer)
    at, ends = edges[:-1], edges[1:]
    if (ends - at <= PREFIX_BYTES).any() or data[at].any():
        raise ValueError("not in Confluent's wire format: expected a zero byte, four of schema id, the index path")
    try:
        count, at = varints(data, at + PREFIX_BYTES)
        for step in range(int(count.max()) if (count < 64).all() else 0):
            deeper = count > step
            _, at[deeper] = varints(data, at[deeper])
    except (IndexError, KafkaError) as error:
        raise ValueError(f"the message's index path is cut off: {error}") from None
    if (at > ends).any() or (count < 0).any() or (count >= 64).any():
        raise ValueError("the message's index path is cut off or too long")
    return gather(data, buffer, at, ends - at)
