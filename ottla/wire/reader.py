"""Generates a decoder: straight-line Python for one class in one version, with inlined structs and loops.

Rules:
- Adjacent fixed-size fields, and the lengths that follow them, are read by one `unpack_from`.
- A slice past the end of the input is short, not an error, so positions can run past the end. Reading a single value
  there raises; the check at the end catches the rest.
- A count is checked against the remaining bytes before anything is allocated.
"""

from __future__ import annotations

from functools import cache
from struct import Struct as Format
from struct import unpack_from
from typing import Any

from ottla.wire.schema import SchemaSource, WireField, emit_default, fields, schema
from ottla.wire.type import FIXED, Malformed

#: The maximum size of a compact string.
_STRING_BYTES_MAX = 32767

#: The number of elements in one step of a long message, which takes about half a millisecond.
ELEMENTS_A_STEP = 256
#: The maximum number of elements in a long message: an element of two bytes becomes an object of a hundred.
ELEMENTS_MAX = 500_000
#: Number arrays shorter than this (replicas, ISRs) have prepared layouts.
RUN_LAYOUTS = 8


@cache
def run_layouts(code: str) -> tuple[Format, ...]:
    """Return the layouts of 0, 1, 2, ... numbers of one type."""
    return tuple(Format(f">{count}{code}") for count in range(RUN_LAYOUTS))


def varint_rest(data: Any, byte: int, position: int) -> tuple[int, int]:
    """Read the rest of an unsigned varint (uint32) whose first byte has its high bit set."""
    value = byte & 127
    for shift in (7, 14, 21, 28):
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise Malformed(f"a varint that ends at byte {position} does not fit into 32 bits")


def long_string(data: Any, byte: int, position: int) -> tuple[int, int]:
    """Read the rest of a string's length, as `varint_rest`."""
    value, position = varint_rest(data, byte, position)
    if value > _STRING_BYTES_MAX + 1:
        raise Malformed(f"a string of {value - 1} bytes at byte {position}")
    return value, position


def unknown_tags(data: Any, count: int, position: int, end: int) -> tuple[dict[int, bytes], int]:
    """Read the tagged fields of a struct that declares none."""
    if count > 127:
        count, position = varint_rest(data, count, position)
    if count * 2 > end - position:
        raise Malformed(f"{count} tagged fields in {end - position} bytes")
    fields: dict[int, bytes] = {}
    for _ in range(count):
        tag, position = _varint(data, position)
        size, position = _varint(data, position)
        if size > end - position:
            raise Malformed(f"tagged field {tag} has {size} bytes, {end - position} are left")
        fields[tag] = bytes(data[position : position + size])
        position += size
    return fields, position


def _varint(data: Any, position: int) -> tuple[int, int]:
    byte = data[position]
    return (byte, position + 1) if byte < 128 else varint_rest(data, byte, position + 1)


def refuse(what: str, position: int) -> Malformed:
    """Return the error that the generated code raises."""
    return Malformed(f"{what} at byte {position}")


def has_records(cls: type) -> bool:
    """Return True if a message contains record batches, directly or in a struct."""
    return any(f.type == "Records" or (f.struct is not None and has_records(f.struct)) for f in fields(cls))


def decoder_source(cls: type, version: int, *, steps: bool = False) -> SchemaSource:
    """Generate the body of `read(data, position)`; with `steps` it yields after every `ELEMENTS_A_STEP` elements."""
    names = {
        "new": object.__new__,
        "unpack_from": unpack_from,
        "varint_rest": varint_rest,
        "long_string": long_string,
        "unknown_tags": unknown_tags,
        "refuse": refuse,
        "NONE": None,
    }
    return _Reader(cls, version, SchemaSource(names), steps).source


class _Reader:
    def __init__(self, cls: type, version: int, source: SchemaSource, steps: bool) -> None:
        self.version = version
        self.steps = steps
        self.flexible = version in schema(cls).flexible
        self.source = source
        self.views = has_records(cls)
        #: The pending run of fixed-size values: formats and targets.
        self.run: list[tuple[str, str]] = []
        source.add("p = position", "end = len(data)")
        if steps:
            source.add("k = w = 0", "if False:", "    yield")
        if self.views:
            source.add("view = data if type(data) is memoryview else memoryview(data)")
        source.add(f"m = new({source.constant('C', cls)})")
        self.struct(cls, "m")
        source.add("if p > end:", "    raise refuse('the input ends inside the message', end)", "return m, p")

    def flush(self) -> None:
        """Generate the read of the pending run."""
        if not self.run:
            return
        formats, targets = zip(*self.run, strict=True)
        self.run = []
        if formats == ("B",):
            self.source.add(f"{targets[0]} = data[p]", "p += 1")
            return
        read = "u_" + "".join(formats).replace("?", "z")
        layout = Format(">" + "".join(formats))
        self.source.names[read] = layout.unpack_from
        comma = "," if len(targets) == 1 else ""
        self.source.add(f"{', '.join(targets)}{comma} = {read}(data, p)", f"p += {layout.size}")

    def struct(self, cls: type, target: str) -> None:
        tagged = []
        for field in fields(cls):
            name = f"{target}.{field.name}"
            if self.version not in field.versions:
                emit_default(self.source, name, field)
            elif field.tag >= 0 and self.flexible:
                tagged.append(field)
            elif field.tag >= 0:
                emit_default(self.source, name, field)
            else:
                self.field(field, name)
        if self.flexible:
            self.tags(tagged, target)
        else:
            self.flush()
            self.source.add(f"{target}.unknown_tagged_fields = None")

    def field(self, field: WireField, target: str, *, tagged: bool = False) -> None:
        nullable = field.is_nullable(self.version)
        if field.is_array:
            self.array(field, target, nullable)
        elif field.struct is not None:
            self.nested(field.struct, target, nullable, tagged=tagged)
        elif field.type in FIXED:
            self.run.append((FIXED[field.type][0], target))
        else:
            self.bytes_like(field, target, nullable)

    def length(self, short: bool, compact: bool, stem: str = "n") -> str:
        """Read a length into a new variable: negative for null; if compact, 0 for null and otherwise length + 1."""
        n = self.source.fresh(stem)
        self.run.append(("B" if compact else "h" if short else "i", n))
        self.flush()
        if compact:
            rest = "long_string" if short else "varint_rest"
            self.source.add(f"if {n} > 127:", f"    {n}, p = {rest}(data, {n}, p)")
        return n

    def present(self, n: str, compact: bool, target: str, nullable: bool) -> None:
        """Handle null and start the block of a value that is present."""
        source = self.source
        absent = f"not {n}" if compact else f"{n} < 0"
        if nullable:
            source.add(f"if {absent}:", f"    {target} = None", "else:")
            source.indent += 1
        else:
            source.add(f"if {absent}:", f"    raise refuse('null in {target.partition('.')[2]}', p)")
        if compact:
            source.add(f"{n} -= 1")

    def bytes_like(self, field: WireField, target: str, nullable: bool) -> None:
        compact = self.flexible and field.compact
        n = self.length(field.type == "String", compact)
        self.present(n, compact, target, nullable)
        self.source.add(f"q = p + {n}")
        if field.type == "String":
            self.text(target)
        elif field.type == "Bytes":
            self.source.add("if q > end:", "    raise refuse('the input ends inside bytes', end)")
            self.source.add(f"{target} = bytes(data[p:q])")
        else:
            self.source.add("if q > end:", "    raise refuse('the input ends inside records', end)")
            self.source.add(f"{target} = view[p:q]")
        self.source.add("p = q")
        self.source.indent -= nullable

    def text(self, target: str) -> None:
        self.source.add(f'{target} = str(data[p:q], "utf-8")' if self.views else f"{target} = data[p:q].decode()")

    def array(self, field: WireField, target: str, nullable: bool) -> None:
        source = self.source
        n = self.length(False, self.flexible)
        self.present(n, self.flexible, target, nullable)
        size = FIXED[field.type][1] if field.type in FIXED else 1
        source.add(f"if {n}{f' * {size}' if size > 1 else ''} > end - p:")
        source.add(f"    raise refuse(f'{{{n}}} elements in {{end - p}} bytes', p)")
        if self.steps and field.type in ("Uuid", *FIXED):
            source.add(f"w += {n}", f"if w > {ELEMENTS_MAX}:")
            source.add("    raise refuse(f'{w} elements are too many', p)")
        if field.type == "Uuid":
            source.add(f"q = p + 16 * {n}", f"{target} = [bytes(data[i:i + 16]) for i in range(p, q, 16)]", "p = q")
        elif field.type in FIXED:
            code = FIXED[field.type][0]
            few = source.constant("few", run_layouts(code))
            source.add(f"if {n} < {RUN_LAYOUTS}:", f"    {target} = list({few}[{n}].unpack_from(data, p))")
            source.add("else:", f"    {target} = list(unpack_from(f'>{{{n}}}{code}', data, p))")
            source.add(f"p += {f'{size} * ' if size > 1 else ''}{n}")
        else:
            self.elements(field, target, n)
        source.indent -= nullable

    def elements(self, field: WireField, target: str, n: str) -> None:
        source = self.source
        add, element = source.fresh("add"), source.fresh("e")
        items = source.fresh("items")
        source.add(f"{items} = {target} = []", f"{add} = {items}.append", f"for _ in range({n}):")
        source.indent += 1
        if self.steps:
            source.add("k += 1", f"if not k % {ELEMENTS_A_STEP}:", "    yield")
            source.add(f"    if k > {ELEMENTS_MAX}:", "        raise refuse(f'{k} elements are too many', p)")
        if field.struct is not None:
            source.add(f"{element} = new({source.constant('C', field.struct)})", f"{add}({element})")
            self.struct(field.struct, element)
        else:
            length = self.length(True, self.flexible)
            self.present(length, self.flexible, f"an element of.{field.name}", False)
            source.add(f"q = p + {length}")
            self.text(element)
            source.add(f"{add}({element})", "p = q")
        source.indent -= 1

    def nested(self, cls: type, target: str, nullable: bool, *, tagged: bool) -> None:
        """Read a struct in a field. A nullable one has a byte before it: -1 or 1, in a tagged field 0 or 1."""
        source = self.source
        if nullable:
            n = source.fresh("n")
            self.run.append(("b", n))
            self.flush()
            source.add(f"if {n} {'<=' if tagged else '<'} 0:", f"    {target} = None", "else:")
            source.indent += 1
        inner = source.fresh("s")
        # Earlier fields are still in the pending run; creating the object first does not affect them.
        source.add(f"{inner} = {target} = new({source.constant('C', cls)})")
        self.struct(cls, inner)
        if nullable:
            self.flush()
            source.indent -= 1

    def tags(self, tagged: list[WireField], target: str) -> None:
        source = self.source
        n = source.fresh("t")
        self.run.append(("B", n))
        self.flush()
        unknown = f"{target}.unknown_tagged_fields"
        if not tagged:
            source.add(f"if {n}:", f"    {unknown}, p = unknown_tags(data, {n}, p, end)", "else:")
            source.add(f"    {unknown} = None")
            return
        source.add(f"{unknown} = None")
        for field in tagged:
            emit_default(source, f"{target}.{field.name}", field)
        tag, size, stop = source.fresh("tag"), source.fresh("size"), source.fresh("stop")
        source.add(f"if {n}:")
        source.indent += 1
        source.add(f"if {n} > 127:", f"    {n}, p = varint_rest(data, {n}, p)")
        source.add(f"if {n} * 2 > end - p:", f"    raise refuse(f'{{{n}}} tagged fields', p)", f"for _ in range({n}):")
        source.indent += 1
        for number in (tag, size):
            source.add(
                f"{number} = data[p]",
                "p += 1",
                f"if {number} > 127:",
                f"    {number}, p = varint_rest(data, {number}, p)",
            )
        source.add(
            f"{stop} = p + {size}", f"if {stop} > end:", f"    raise refuse(f'tagged field {{{tag}}} ends', end)"
        )
        for index, field in enumerate(tagged):
            source.add(f"{'elif' if index else 'if'} {tag} == {field.tag}:")
            source.indent += 1
            self.field(field, f"{target}.{field.name}", tagged=True)
            self.flush()
            source.add(f"if p != {stop}:", f"    raise refuse('tagged field {field.tag} has another size', p)")
            source.indent -= 1
        source.add("else:", f"    if {unknown} is None:", f"        {unknown} = {{}}")
        source.add(f"    {unknown}[{tag}] = bytes(data[p:{stop}])", f"    p = {stop}")
        source.indent -= 2
