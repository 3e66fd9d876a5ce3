"""The reference of Kafka Streams' API names all that is public in Apache's jars. Class files are read without a JVM."""

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import pytest

from tests.interop import toolchain

pytestmark = pytest.mark.interop

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "streams.md"
#: Java's access flags: public or protected, and made by the compiler.
_OPEN, _SYNTHETIC = 0x0005, 0x1000
#: Bytes of the entries of a constant pool, by tag. Text (1), and longs and doubles (5, 6), have rules of their own.
_SIZES = {3: 4, 4: 4, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
#: The classes of which each method is named, beside the classes themselves.
_WHOLE = re.compile(
    r"StreamsBuilder|Topology|KafkaStreams|TopologyTestDriver|Test(In|Out)putTopic|kstream/(Suppressed|Materialized)"
    r"|kstream/(K(Stream|Table)|GlobalKTable|KGrouped|Cogrouped|BranchedK|TimeWindowedK|SessionWindowedK)\w*"
    r"|processor/api/Process(ing|or)Context|state/(ReadOnly)?(KeyValue|Window|Session|VersionedKeyValue)Store"
    r"|state/Stores"
)


class Class(NamedTuple):
    """A class: its name, flags, methods that are open to programs, and whether it is deprecated."""

    name: str
    flags: int
    methods: list[str]
    deprecated: bool


class _Reader:
    """The numbers of a class file (JVM specification, chapter 4)."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 8

    def u2(self) -> int:
        self.at += 2
        return int.from_bytes(self.data[self.at - 2 : self.at], "big")

    def constants(self) -> list[Any]:
        """Texts, and the indexes of the texts of names; None for all others."""
        found: list[Any] = [None] * self.u2()
        number = 1
        while number < len(found):
            tag = self.data[self.at]
            self.at += 1
            if tag == 1:
                size = self.u2()
                found[number] = self.data[self.at : self.at + size].decode(errors="replace")
                self.at += size
            elif tag in (5, 6):
                self.at, number = self.at + 8, number + 1
            else:
                found[number] = int.from_bytes(self.data[self.at : self.at + 2], "big")
                self.at += _SIZES[tag]
            number += 1
        return found

    def attributes(self, texts: list[Any]) -> dict[str, bytes]:
        found = {}
        for _ in range(self.u2()):
            name, size = struct.unpack_from(">HI", self.data, self.at)
            found[texts[name]] = self.data[self.at + 6 : self.at + 6 + size]
            self.at += 6 + size
        return found

    def members(self, texts: list[Any]) -> Iterator[tuple[str, int, bool]]:
        for _ in range(self.u2()):
            flags, name, _ = self.u2(), self.u2(), self.u2()
            yield texts[name], flags, "Deprecated" in self.attributes(texts)


def read(data: bytes) -> Class:
    """Read a class file."""
    reader = _Reader(data)
    texts = reader.constants()
    flags, own, _, interfaces = reader.u2(), reader.u2(), reader.u2(), reader.u2()
    reader.at += 2 * interfaces
    list(reader.members(texts))
    methods = [
        name
        for name, method_flags, deprecated in reader.members(texts)
        if method_flags & _OPEN
        and not method_flags & _SYNTHETIC
        and not deprecated
        and name not in ("<init>", "<clinit>", "equals", "hashCode", "toString")
    ]
    attributes = reader.attributes(texts)
    for inner, _, _, inner_flags in struct.iter_unpack(">HHHH", attributes.get("InnerClasses", b"")[2:]):
        if texts[inner] == texts[own]:
            flags = inner_flags
    return Class(texts[texts[own]], flags, methods, "Deprecated" in attributes)


def public() -> Iterator[Class]:
    """The public classes of Kafka Streams and of its test driver that are not deprecated."""
    for jar in toolchain.streams_jars():
        with ZipFile(jar) as files:
            for name in files.namelist():
                if name.endswith(".class") and "/internals/" not in name and not re.search(r"\$\d", name):
                    found = read(files.read(name))
                    if found.flags & _OPEN and not found.deprecated:
                        yield found._replace(name=found.name.removeprefix("org/apache/kafka/streams/"))


def test_the_reference_has_a_row_for_each_public_class_and_method() -> None:
    rows = "".join(line.rpartition("|")[0] for line in PAGE.read_text().splitlines() if line.startswith("| "))
    named = set(re.findall(r"\w+", rows))
    classes = list(public())
    assert len(classes) > 200
    missing = [each.name for each in classes if not named.issuperset(each.name.rpartition("/")[2].split("$"))]
    assert missing == []
    missing = [
        f"{each.name}.{method}"
        for each in classes
        if _WHOLE.fullmatch(each.name)
        for method in each.methods
        if method not in named
    ]
    assert missing == []
