"""Numbers at which an encoding changes its form, in messages made for that, in every way to write and to read them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from ottla.wire import reader as reading
from ottla.wire.compile import decode, decoder, encode, encoder, step_decoder, step_encoder
from ottla.wire.reader import ELEMENTS_MAX, RUN_LAYOUTS, long_string, unknown_tags, varint_rest
from ottla.wire.schema import LAST, on, span, wire
from ottla.wire.type import (
    Boolean,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Malformed,
    Records,
    String,
    Uint16,
    Uint32,
    UnsupportedVersion,
    Uuid,
)
from ottla.wire.writer import encode_uncompiled, tag_section, varint
from tests.wire.test_steps import finished


@wire
class Item:
    name: String | None = on("0+", default="", nullable="1+")
    numbers: list[Int32] = on("0+", factory=list)


@wire(versions="0-2", flexible="1+")
class Every:
    """A field of each type; version 1 is flexible, and tags come with it."""

    flag: Boolean = on("0+", default=False)
    byte: Int8 = on("0+", default=0)
    short: Int16 = on("0+", default=0)
    word: Int32 = on("0+", default=0)
    long: Int64 = on("0+", default=0)
    ushort: Uint16 = on("0+", default=0)
    uword: Uint32 = on("0+", default=0)
    real: Float64 = on("0+", default=0.0)
    uuid: Uuid = on("0+", default=bytes(16))
    text: String | None = on("0+", default=None)
    data: Bytes | None = on("0+", default=None)
    shorts: list[Int16] | None = on("0+", factory=list)
    texts: list[String] = on("0+", factory=list)
    uuids: list[Uuid] = on("0+", factory=list)
    items: list[Item] = on("0+", factory=list)
    one: Item | None = on("0+", default=None)
    late: Int32 = on("2+", default=5, ignorable=True)
    strict: Int32 = on("2+", default=7)
    tagged: Int32 = on("1+", default=-1, tag=0)
    tagged_text: String | None = on("1+", default=None, tag=300)


@wire(versions="0-1", flexible="1+")
class Carrier:
    records: Records | None = on("0+", default=None)
    after: Int32 = on("0+", default=0)


#: Made with values that their types do not have, too.
every: Any = Every
item: Any = Item
VERSIONS = [0, 1, 2]


def there_and_back(made: Any, version: int) -> bytes:
    """The bytes of a message, after every way to write and to read it agreed."""
    data = b"".join(encoder(type(made), version)(made))
    assert encode_uncompiled(made, version) == data
    assert b"".join(finished(step_encoder(type(made), version)(made))[0]) == data
    for buffer in (data, b"xx" + data + b"yy"):
        at = buffer.index(data)
        assert decode(type(made), version, buffer, at) == (made, at + len(data))
        assert finished(step_decoder(type(made), version)(buffer, at))[0] == (made, at + len(data))
    return data


# ---- varints

_EDGES = [0, 1, 126, 127, 128, 129, 255, 16_256, 16_383, 16_384, 127 << 14, (1 << 21) - 1, 1 << 21, 127 << 21,
          (1 << 28) - 1, 1 << 28, (1 << 31) - 1, (1 << 32) - 1]  # fmt: skip


@pytest.mark.parametrize("value", _EDGES)
def test_an_unsigned_varint_has_as_few_bytes_as_it_needs(value: int) -> None:
    data = varint(value)
    assert len(data) == max(1, -(-value.bit_length() // 7))
    assert sum((byte & 127) << (7 * place) for place, byte in enumerate(data)) == value
    assert [byte > 127 for byte in data] == [True] * (len(data) - 1) + [False]
    if value > 127:
        assert varint_rest(b"x" + data + b"y", data[0], 2) == (value, 1 + len(data))
    if 127 < value <= 32_768:
        assert long_string(data, data[0], 1) == (value, len(data))
    elif value > 32_768:
        with pytest.raises(Malformed, match=f"a string of {value - 1} bytes at byte {len(data)}"):
            long_string(data, data[0], 1)


def test_a_string_of_a_flexible_version_has_at_most_the_bytes_of_an_old_one() -> None:
    text = "x" * 32_767
    for version in VERSIONS:
        there_and_back(every(text=text), version)
    with pytest.raises(Malformed, match="a string of 32768 bytes"):
        decode(Every, 1, encode(every(text=text + "x"), 1))


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff\x10", b"\xff\xff\xff\xff\xff", b"\x80\x80\x80\x80\x80\x01"])
def test_a_varint_of_more_than_32_bits_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed, match="a varint that ends at byte 5 does not fit into 32 bits"):
        varint_rest(data, data[0], 1)
    assert varint_rest(b"\xff\xff\xff\xff\x0f", 0xFF, 1) == ((1 << 32) - 1, 5)


# ---- tags


@pytest.mark.parametrize(
    ("known", "unknown", "data"),
    [
        ([], None, b"\0"),
        ([], {5: b"ab"}, b"\x01\x05\x02ab"),
        ([(7, b"")], None, b"\x01\x07\x00"),
        ([(7, b"x"), (2, b"y")], {4: b""}, b"\x03\x02\x01y\x04\x00\x07\x01x"),
        ([(300, b"")], {}, b"\x01\xac\x02\x00"),
    ],
)
def test_tags_are_written_in_their_order(known: Any, unknown: Any, data: bytes) -> None:
    assert tag_section(known, unknown) == data


@pytest.mark.parametrize("count", [0, 1, 2, 127, 128, 200])
def test_unknown_tags_are_kept_however_many_they_are(count: int) -> None:
    unknown = {1_000 + number: b"x" * (number % 130) for number in range(count)} or None
    made = every(unknown_tagged_fields=unknown, tagged=4, tagged_text="")
    for version in (1, 2):
        there_and_back(made, version)
    section = tag_section([], unknown)
    assert unknown_tags(section, section[0], 1, len(section)) == (unknown or {}, len(section))


@pytest.mark.parametrize(
    ("section", "told"),
    [
        (b"\x01\x05\x03ab", "tagged field 5 has 3 bytes, 2 are left"),
        (b"\x02\x05\x00", "2 tagged fields in 2 bytes"),
        (b"\x80\x01\x05\x00", "128 tagged fields in 2 bytes"),
    ],
)
def test_tags_that_their_input_does_not_hold_are_malformed(section: bytes, told: str) -> None:
    with pytest.raises(Malformed, match=told):
        unknown_tags(section, section[0], 1, len(section))


def test_a_known_tag_has_its_own_size() -> None:
    plain = encode(every(), 1)
    assert plain.endswith(b"\0")
    for tags, told in (
        (b"\x01\x00\x03\0\0\0", "the input ends|tagged field 0 has another size|unpack"),
        (b"\x01\x00\x05\0\0\0\0\0", "tagged field 0 has another size"),
        (b"\x01\x00\x05\0\0\0\0", "tagged field 0 ends"),
        (b"\x03\x00\x04\0\0\0", "3 tagged fields"),
    ):
        with pytest.raises(Malformed, match=told):
            decode(Every, 1, plain[:-1] + tags)
    found: Any
    found, _ = decode(Every, 1, plain[:-1] + b"\x02\x00\x04\0\0\0\x09\x07\x01z")
    assert (found.tagged, found.unknown_tagged_fields) == (9, {7: b"z"})
    found, _ = decode(Every, 1, plain[:-1] + b"\x01\xac\x02\x03\x03ab")
    assert found.tagged_text == "ab"


def test_a_tag_with_its_default_is_not_written_and_null_is_a_value() -> None:
    assert encode(every(tagged=-1), 1) == encode(every(), 1)
    assert len(encode(every(tagged=0), 1)) == len(encode(every(), 1)) + 6
    with pytest.raises(UnsupportedVersion, match="version 0 of Every cannot express tagged"):
        encode(every(tagged=0), 0)


# ---- fields


@pytest.mark.parametrize("version", VERSIONS)
def test_a_field_of_each_type_is_written_at_its_bounds(version: int) -> None:
    low = every(byte=-128, short=-(1 << 15), word=-(1 << 31), long=-(1 << 63), real=-0.5, uuid=bytes(range(16)))
    high = every(flag=True, byte=127, short=(1 << 15) - 1, word=(1 << 31) - 1, long=(1 << 63) - 1, real=1e300)
    high.ushort, high.uword = (1 << 16) - 1, (1 << 32) - 1
    assert there_and_back(low, version)[1:20] == struct.pack(">bhiqHH", -128, -(1 << 15), -(1 << 31), -(1 << 63), 0, 0)
    there_and_back(high, version)
    for name, value in (("byte", 128), ("short", 1 << 15), ("word", 1 << 31), ("ushort", -1), ("uword", 1 << 32)):
        with pytest.raises(struct.error):
            encode(every(**{name: value}), version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16_382, 16_383])
def test_bytes_texts_and_arrays_have_any_length(version: int, size: int) -> None:
    made = every(text="x" * size, data=b"y" * size, shorts=[1] * size, texts=["z" * size, ""])
    if size < 200:
        made.uuids = [bytes([number]) * 16 for number in range(size)]
        made.items = [item(name=f"n{number}", numbers=[number] * (number % 3)) for number in range(size)]
    data = there_and_back(made, version)
    heads = (varint(size + 1), struct.pack(">h", size)) if size < 1 << 15 else ()
    assert heads[version == 0] in data


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [RUN_LAYOUTS - 1, RUN_LAYOUTS, RUN_LAYOUTS + 1])
def test_a_few_numbers_and_many_are_written_alike(version: int, count: int) -> None:
    numbers = [number - 3 for number in range(count)]
    data = there_and_back(every(shorts=numbers, items=[item(numbers=numbers)]), version)
    assert struct.pack(f">{count}h", *numbers) in data
    assert struct.pack(f">{count}i", *numbers) in data


@pytest.mark.parametrize("version", VERSIONS)
def test_nulls_are_told_from_what_is_empty(version: int) -> None:
    for name, empty in (("text", ""), ("data", b""), ("shorts", []), ("one", item())):
        nothing = there_and_back(every(**{name: None}), version)
        assert nothing != there_and_back(every(**{name: empty}), version)
        assert getattr(decode(Every, version, nothing)[0], name) is None
    # The name of an item may be null from version 1 on.
    if version:
        there_and_back(every(items=[item(name=None)]), version)
    for name in ("texts", "uuids", "items"):
        with pytest.raises(TypeError):
            encode(every(**{name: None}), version)
    with pytest.raises(AttributeError):
        encode(every(texts=[None]), version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["texts", "uuids", "items"])
def test_null_in_a_field_that_has_none_is_malformed(version: int, name: str) -> None:
    mark = {"texts": ["m"], "uuids": [b"m" * 16], "items": [item(name="m")]}[name]
    whole = encode(every(**{name: mark}), version)
    empty = encode(every(), version)
    place = next(at for at, (one, other) in enumerate(zip(whole, empty, strict=False)) if one != other)
    place -= 0 if version else 3
    null = b"\0" if version else b"\xff\xff\xff\xff"
    with pytest.raises(Malformed, match=f"null in {name} at byte"):
        decode(Every, version, empty[:place] + null + empty[place + len(null) :])


@pytest.mark.parametrize(("name", "size"), [("shorts", 2), ("uuids", 16), ("texts", 1), ("items", 1)])
def test_a_count_is_at_most_what_the_bytes_that_are_left_can_hold(name: str, size: int) -> None:
    empty = encode(every(), 0)
    mark = {"shorts": [9], "uuids": [b"m" * 16], "texts": ["m"], "items": [item(name="m")]}[name]
    place = next(at for at, (one, other) in enumerate(zip(encode(every(**{name: mark}), 0), empty, strict=False))
                 if one != other) - 3  # fmt: skip
    left = len(empty) - place - 4
    for count in (left // size + 1, 1 << 30, (1 << 31) - 1):
        with pytest.raises(Malformed, match=rf"{count} elements in {left} bytes at byte"):
            decode(Every, 0, empty[:place] + struct.pack(">i", count) + empty[place + 4 :])


def test_a_field_that_came_later_is_ignored_or_refused_and_has_its_default() -> None:
    assert decode(Every, 1, encode(every(late=9), 1))[0].late == 5
    assert decode(Every, 2, encode(every(late=9, strict=8), 2))[0].late == 9
    for version in (0, 1):
        assert decode(Every, version, encode(every(strict=7), version))[0].strict == 7
        with pytest.raises(UnsupportedVersion, match=f"version {version} of Every cannot express strict"):
            encode(every(strict=8), version)


@pytest.mark.parametrize("version", [-1, 3])
def test_a_version_that_there_is_not_is_refused_by_each_way(version: int) -> None:
    ways: list[Callable[[], Any]] = [
        lambda: encode(every(), version),
        lambda: decode(Every, version, b""),
        lambda: encoder(Every, version),
        lambda: decoder(Every, version),
        lambda: step_encoder(Every, version),
        lambda: step_decoder(Every, version),
        lambda: encode(item(), 0),
    ]
    for way in ways:
        with pytest.raises(UnsupportedVersion, match=r"(Every has no version|Item has no version)"):
            way()


# ---- records


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("size", [0, 1, 8_185, 8_190, 8_191, 8_192, 8_193])
def test_records_are_a_part_of_their_own_from_a_size_on(version: int, size: int) -> None:
    records = b"r" * size
    parts = encoder(Carrier, version)(Carrier(records=records, after=7))
    assert len(parts) == (3 if size >= 8_192 else 1)
    data = b"".join(parts)
    for kind in (bytes, bytearray, memoryview):
        found: Any
        found, end = decode(Carrier, version, kind(data))
        assert (bytes(found.records), found.after, end) == (records, 7, len(data))
    for cut in (1, 4, 5, len(data) - 1):
        with pytest.raises(Malformed):
            decode(Carrier, version, data[:-cut])


@pytest.mark.parametrize("version", [0, 1])
def test_no_records_are_null(version: int) -> None:
    data = encode(Carrier(after=7), version)
    assert data == (b"\0\0\0\0\x07\0" if version else b"\xff\xff\xff\xff\0\0\0\x07")
    assert decode(Carrier, version, data)[0].records is None


# ---- steps and bounds


def test_a_long_message_has_at_most_so_many_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ELEMENTS_MAX == 500_000
    monkeypatch.setattr(reading, "ELEMENTS_MAX", 10)

    @wire(versions="0", flexible="none")
    class Long:
        numbers: list[Int16] = on("0+", factory=list)
        uuids: list[Uuid] = on("0+", factory=list)

    for counts, fits in (((10, 0), True), ((4, 6), True), ((11, 0), False), ((5, 6), False), ((0, 11), False)):
        data = encode(Long(numbers=[1] * counts[0], uuids=[Uuid(bytes(16))] * counts[1]), 0)
        assert len(decode(Long, 0, data)[0].numbers) == counts[0]
        if fits:
            assert finished(step_decoder(Long, 0)(data))[0][1] == len(data)
            continue
        with pytest.raises(Malformed, match=f"{sum(counts)} elements are too many"):
            finished(step_decoder(Long, 0)(data))


@pytest.mark.parametrize(
    ("text", "versions"),
    [("3", range(3, 4)), ("0-12", range(13)), ("9+", range(9, LAST + 1)), ("none", range(0)), ("0+", range(LAST + 1))],
)
def test_versions_are_read_as_kafka_writes_them(text: str, versions: range) -> None:
    assert span(text) == versions


def test_messages_are_equal_only_to_messages_of_their_kind() -> None:
    assert item(name="a") == item(name="a")
    assert item(name="a") != item(name="a", unknown_tagged_fields={1: b""})
    assert item() not in (Carrier(), None, "Item()")
    assert repr(item(name="a", numbers=[1])) == "Item(name='a', numbers=[1])"
    assert repr(item(unknown_tagged_fields={1: b""})).endswith("unknown_tagged_fields={1: b''})")
