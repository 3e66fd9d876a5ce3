"""Generates an encoder: straight-line Python for one class in one version, with inlined structs and loops.

`encode_uncompiled` does the work of the generated code field by field, without generating it.

Rules:
- Adjacent fixed-size fields, and the lengths that follow them, are written by one `pack`.
- A field that the version lacks must have its default, unless it is ignorable.
- Tags are written in ascending order, including unknown ones.
- Records that are long or not bytes are not copied: they become a separate part.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct as Format
from struct import pack
from typing import Any

from ottla.wire.reader import ELEMENTS_A_STEP, RUN_LAYOUTS, has_records, run_layouts
from ottla.wire.schema import SchemaSource, WireField, fields, schema
from ottla.wire.type import FIXED, UnsupportedVersion

#: Bytes shorter than this are cheaper to copy than to send as a separate part.
_OWN_PART_BYTES_MIN = 8192
#: Compiling an encoder takes about as long as encoding some hundred elements without one.
_UNCOMPILED_ELEMENTS_MAX = 500
_BYTES = frozenset({bytes, memoryview, bytearray})
_SMALL = tuple(bytes([value]) for value in range(128))


def varint(value: int) -> bytes:
    """Encode an unsigned varint."""
    if value < 128:
        return _SMALL[value]
    if value < 16384:
        return bytes((value & 127 | 128, value >> 7))
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def tag_section(known: list[tuple[int, bytes]], unknown: dict[int, bytes] | None) -> bytes:
    """Encode the count of a struct's tagged fields and the fields, known and unknown."""
    pairs = sorted([*known, *unknown.items()]) if unknown else sorted(known)
    out = [varint(len(pairs))]
    for tag, body in pairs:
        out += (varint(tag), varint(len(body)), body)
    return b"".join(out)


def lacks(cls: str, version: int, name: str) -> UnsupportedVersion:
    """Return the error that the generated code raises."""
    return UnsupportedVersion(f"version {version} of {cls} cannot express {name}")


def encoder_source(cls: type, version: int, *, steps: bool = False) -> SchemaSource:
    """Generate the body of `write(m)`, which returns a list of parts; with `steps` it yields between elements."""
    names = {
        "varint": varint,
        "SMALL": _SMALL,
        "tag_section": tag_section,
        "lacks": lacks,
        "pack": pack,
        "BYTES": _BYTES,
        "join": b"".join,
    }
    return _Writer(cls, version, SchemaSource(names), steps).source


class _Writer:
    def __init__(self, cls: type, version: int, source: SchemaSource, steps: bool) -> None:
        self.cls = cls
        self.steps = steps
        self.version = version
        self.flexible = version in schema(cls).flexible
        self.source = source
        #: The pending run of fixed-size values: formats and expressions.
        self.run: list[tuple[str, str]] = []
        #: The source's name for `append` of the current output list.
        self.out = "add"
        parts = has_records(cls) or steps
        if steps:
            source.add("k = 0", "if False:", "    yield")
        if parts:
            source.add("parts = []")
        source.add("out = []", "add = out.append")
        self.struct(cls, "m")
        self.flush()
        source.add("parts.append(join(out))" if parts else "parts = [join(out)]", "return parts")

    def flush(self) -> None:
        """Generate the write of the pending run."""
        if not self.run:
            return
        formats, values = zip(*self.run, strict=True)
        self.run = []
        call = "p_" + "".join(formats).replace("?", "z")
        self.source.names[call] = Format(">" + "".join(formats)).pack
        self.source.add(f"{self.out}({call}({', '.join(values)}))")

    def struct(self, cls: type, target: str) -> None:
        tagged = []
        for field in fields(cls):
            name = f"{target}.{field.name}"
            if self.version not in field.versions or (field.tag >= 0 and not self.flexible):
                if not field.ignorable:
                    refusal = f"raise lacks({self.cls.__name__!r}, {self.version}, {field.name!r})"
                    self.source.add(f"if {differs(self.source, field, name)}:", f"    {refusal}")
            elif field.tag >= 0:
                tagged.append(field)
            else:
                self.field(field, name)
        if self.flexible:
            self.tags(tagged, target)

    def field(self, field: WireField, value: str, *, tagged: bool = False) -> None:
        nullable = field.is_nullable(self.version)
        if field.is_array:
            self.array(field, value, nullable)
        elif field.struct is not None:
            self.nested(field.struct, value, nullable, tagged=tagged)
        elif field.type in FIXED:
            self.run.append((FIXED[field.type][0], value))
        elif field.type == "Records":
            self.records(value, nullable)
        else:
            self.bytes_like(field, value, nullable)

    def length(self, compact: bool, short: bool, x: str, *, nullable: bool = False) -> None:
        """Write the length of variable `x`. If it may be None, a block begins for the value that is present."""
        source = self.source
        # A length that joins a run is written with it, whatever it is.
        joins = bool(self.run) and not compact
        if nullable and not joins:
            self.flush()
            null = "b'\\0'" if compact else "b'\\xff\\xff'" if short else "b'\\xff\\xff\\xff\\xff'"
            source.add(f"if {x} is None:", f"    {self.out}({null})", "else:")
            source.indent += 1
        if compact:
            self.flush()
            n = source.fresh("n")
            source.add(f"{n} = len({x}) + 1", f"{self.out}(SMALL[{n}] if {n} < 128 else varint({n}))")
            return
        length = f"-1 if {x} is None else len({x})" if nullable and joins else f"len({x})"
        self.run.append(("h" if short else "i", length))
        self.flush()
        if nullable and joins:
            source.add(f"if {x} is not None:")
            source.indent += 1

    def bytes_like(self, field: WireField, value: str, nullable: bool) -> None:
        source, short = self.source, field.type == "String"
        encode = ".encode()" if short else ""
        x = source.fresh("x")
        if nullable and encode:
            source.add(f"{x} = {value}", f"if {x} is not None:", f"    {x} = {x}{encode}")
        else:
            source.add(f"{x} = {value}{encode}")
        self.length(self.flexible and field.compact, short, x, nullable=nullable)
        source.add(f"{self.out}({x})")
        source.indent -= nullable

    def records(self, value: str, nullable: bool) -> None:
        source = self.source
        x = source.fresh("x")
        source.add(f"{x} = {value}")
        self.length(self.flexible, False, x, nullable=nullable)
        source.add(f"if type({x}) in BYTES and len({x}) < {_OWN_PART_BYTES_MIN}:", f"    {self.out}({x})")
        source.add(f"elif len({x}):", "    parts.append(join(out))", "    out.clear()", f"    parts.append({x})")
        source.indent -= nullable

    def array(self, field: WireField, value: str, nullable: bool) -> None:
        source = self.source
        x = source.fresh("x")
        source.add(f"{x} = {value}")
        self.length(self.flexible, False, x, nullable=nullable)
        if field.type == "Uuid":
            source.add(f"{self.out}(join({x}))")
        elif field.type in FIXED:
            code = FIXED[field.type][0]
            few = source.constant("few", run_layouts(code))
            source.add(f"if len({x}) < {RUN_LAYOUTS}:", f"    {self.out}({few}[len({x})].pack(*{x}))")
            source.add("else:", f"    {self.out}(pack(f'>{{len({x})}}{code}', *{x}))")
        else:
            element = source.fresh("e")
            source.add(f"for {element} in {x}:")
            source.indent += 1
            if self.steps and self.out == "add":
                source.add("k += 1", f"if not k % {ELEMENTS_A_STEP}:", "    parts.append(join(out))", "    out.clear()")
                source.add("    yield")
            if field.struct is not None:
                self.struct(field.struct, element)
                self.flush()
                if not fields(field.struct) and not self.flexible:
                    source.add("pass")
            else:
                source.add(f"{element} = {element}.encode()")
                self.length(self.flexible, True, element)
                source.add(f"{self.out}({element})")
            source.indent -= 1
        source.indent -= nullable

    def nested(self, cls: type, value: str, nullable: bool, *, tagged: bool) -> None:
        source = self.source
        x = source.fresh("s")
        if nullable:
            self.flush()
            source.add(f"{x} = {value}", f"if {x} is None:")
            code = "b'\\0'" if tagged else "b'\\xff'"
            source.add(f"    {self.out}({code})", "else:")
            source.indent += 1
            source.add(f"{self.out}(b'\\x01')")
        else:
            source.add(f"{x} = {value}")
        self.struct(cls, x)
        if nullable:
            self.flush()
            source.indent -= 1

    def tags(self, tagged: list[WireField], target: str) -> None:
        source = self.source
        self.flush()
        unknown = f"{target}.unknown_tagged_fields"
        if not tagged:
            source.add(f"{self.out}(tag_section([], {unknown}) if {unknown} else b'\\0')")
            return
        pairs = source.fresh("tags")
        source.add(f"{pairs} = None")
        outer = self.out
        for field in tagged:
            value = source.fresh("v")
            source.add(f"{value} = {target}.{field.name}", f"if {differs(source, field, value)}:")
            source.indent += 1
            body = source.fresh("body")
            self.out = source.fresh("add")
            source.add(f"{body} = []", f"{self.out} = {body}.append")
            self.field(field, value, tagged=True)
            self.flush()
            source.add(f"if {pairs} is None:", f"    {pairs} = []", f"{pairs}.append(({field.tag}, join({body})))")
            source.indent -= 1
        self.out = outer
        source.add(f"if {pairs} is None and not {unknown}:", f"    {outer}(b'\\0')")
        source.add("else:", f"    {outer}(tag_section({pairs} or [], {unknown}))")


def differs(source: SchemaSource, field: WireField, value: str) -> str:
    """Return an expression that is true if a field's value differs from its default."""
    if field.factory is list:
        return f"{value} or {value} is None"
    if field.factory is not None:
        inner = [differs(source, inner_field, f"{value}.{inner_field.name}") for inner_field in fields(field.factory)]
        other = " or ".join(
            [f"{value} is None", *(f"({inner_field})" for inner_field in inner), f"{value}.unknown_tagged_fields"]
        )
        shared = field.shared_default
        return other if shared is None else f"{value} is not {source.constant('D', shared)} and ({other})"
    if field.default is None:
        return f"{value} is not None"
    if field.default is False:
        return value
    return f"{value} != {field.default!r}"


# ---- without generated code


class ManyElements(Exception):
    """The message has an array that takes the uncompiled encoder longer than it takes to compile one."""


def encode_uncompiled(message: Any, version: int) -> bytes:
    """Encode a message without records; raise what the generated encoder raises, or ManyElements."""
    out: list[bytes] = []
    cls = type(message)
    _Uncompiled(cls.__name__, version, version in schema(cls).flexible).struct(out.append, cls, message)
    return b"".join(out)


_Add = Callable[[bytes], None]


class _Uncompiled:
    """Encodes one message in one version. Its methods are named like those that generate the same code."""

    __slots__ = ("flexible", "name", "version")

    def __init__(self, name: str, version: int, flexible: bool) -> None:
        self.name = name
        self.version = version
        self.flexible = flexible

    def struct(self, add: _Add, cls: type, made: Any) -> None:
        tags = []
        for field in fields(cls):
            value = getattr(made, field.name)
            if self.version not in field.versions or (field.tag >= 0 and not self.flexible):
                if not field.ignorable and _value_differs(field, value):
                    raise lacks(self.name, self.version, field.name)
            elif field.tag < 0:
                self.field(add, field, value)
            elif _value_differs(field, value):
                body: list[bytes] = []
                self.field(body.append, field, value, tagged=True)
                tags.append((field.tag, b"".join(body)))
        if self.flexible:
            add(tag_section(tags, made.unknown_tagged_fields))

    def field(self, add: _Add, field: WireField, value: Any, *, tagged: bool = False) -> None:
        absent = value is None and field.is_nullable(self.version)
        if field.is_array:
            self.array(add, field, value, absent)
        elif field.struct is not None:
            self.nested(add, field, field.struct, value, tagged)
        elif field.type in FIXED:
            add(pack(">" + FIXED[field.type][0], value))
        else:
            self.bytes_like(add, field, value, absent)

    def length(self, add: _Add, count: int, *, compact: bool, short: bool) -> None:
        """Write a length; -1 is null."""
        add(varint(count + 1) if compact else pack(">h" if short else ">i", count))

    def bytes_like(self, add: _Add, field: WireField, value: Any, absent: bool) -> None:
        compact, short = self.flexible and field.compact, field.type == "String"
        if absent:
            return self.length(add, -1, compact=compact, short=short)
        self.counted(add, value.encode() if short else value, compact=compact, short=short)
        return None

    def counted(self, add: _Add, data: bytes, *, compact: bool, short: bool) -> None:
        self.length(add, len(data), compact=compact, short=short)
        add(data)

    def array(self, add: _Add, field: WireField, values: Any, absent: bool) -> None:
        self.length(add, -1 if absent else len(values), compact=self.flexible, short=False)
        if absent:
            return
        if field.type in FIXED:
            code = FIXED[field.type][0]
            add(b"".join(values) if field.type == "Uuid" else pack(f">{len(values)}{code}", *values))
            return
        if len(values) > _UNCOMPILED_ELEMENTS_MAX:
            raise ManyElements
        for value in values:
            if field.struct is not None:
                self.struct(add, field.struct, value)
            else:
                self.counted(add, value.encode(), compact=self.flexible, short=True)

    def nested(self, add: _Add, field: WireField, cls: type, value: Any, tagged: bool) -> None:
        if field.is_nullable(self.version):
            if value is None:
                return add(b"\0" if tagged else b"\xff")
            add(b"\x01")
        return self.struct(add, cls, value)


def _value_differs(field: WireField, value: Any) -> bool:
    """Return True if a field's value differs from its default, as the expression of `differs` does."""
    if field.factory is list:
        return bool(value) or value is None
    if field.factory is not None:
        return (
            value is None
            or any(_value_differs(inner, getattr(value, inner.name)) for inner in fields(field.factory))
            or bool(value.unknown_tagged_fields)
        )
    if field.default is None:
        return value is not None
    return bool(value) if field.default is False else bool(value != field.default)
