"""JSON objects of one layout: read without parsing, with the result of Arrow's reader, errors included."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client import serde
from ottla.serde import json as json_serde
from ottla.serde import json_layout

KINDS = {
    "id": pa.int64(),
    "user": pa.string(),
    "price": pa.float64(),
    "paid": pa.bool_(),
    "small": pa.uint8(),
    "half": pa.float32(),
    "größe": pa.large_string(),
    "day": pa.date32(),
}
#: Types whose values are compared as bits or bytes: Arrow's reader lets text pass that is not UTF-8.
BITS = {
    pa.float64(): pa.int64(),
    pa.float32(): pa.int32(),
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
}
#: Bytes that mean something to JSON, to the layout, or to Arrow's casts.
BYTES = b'"\\,:{}[] \t\n\0\x1f\x7f\x80\xc3\xff0123456789+-.eExXnaiftru'

plain_text = st.text(st.characters(exclude_characters='"\\', exclude_categories=["Cc", "Cs"]), max_size=20)
VALUES: dict[str, Any] = {
    "id": st.integers(-(2**63), 2**63 - 1) | st.integers(-20, 20),
    "user": plain_text | st.sampled_from(["", "a,", ',"', ":", "x" * 40, "{}"]),
    "price": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-99, 99),
    "paid": st.booleans(),
    "small": st.integers(0, 255),
    "half": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "größe": plain_text,
    "day": st.dates().map(str),
    "extra": plain_text,
    "count": st.integers(),
    "on": st.booleans(),
}


@pytest.fixture(autouse=True, scope="module")
def _few_rows() -> Iterator[None]:
    """A few values are read by their layout, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_serde, "ROWS_MIN", 1)
        yield


def values_of(texts: list[bytes | None]) -> Any:
    return pa.array(texts, pa.binary())


def found_by(reading: Any, values: Any) -> tuple[Any, ...]:
    """What decoding gives, or the error."""
    try:
        array = reading.decode(values)
    except ValueError as error:
        return type(error), str(error)
    array.validate()
    assert array.type == reading.type
    columns = [array.field(index) for index in range(array.type.num_fields)]
    return (
        array.is_valid().to_pylist(),
        [column.view(BITS.get(column.type, column.type)).to_pylist() for column in columns],
    )


def check_same(texts: list[bytes | None], kinds: dict[str, Any] = KINDS) -> None:
    """Reading by layout gives what Arrow's reader alone gives. The values are a part of a longer array."""
    by_layout, alone = serde.json(kinds), serde.json(kinds)
    alone._kinds = None  # type: ignore[attr-defined]
    values = values_of([b"{}", *texts, b"{}"]).slice(1, len(texts))
    assert found_by(by_layout, values) == found_by(alone, values)


def by_layout(texts: list[bytes], kinds: dict[str, Any]) -> bool:
    """True if these values are read without Arrow's reader."""
    found = json_layout.columns_of(
        values_of(list(texts)), json_layout.plain_types(pa.schema(list(kinds.items()))) or {}
    )
    return found is not None


def amid(plain: bytes, *odd: bytes) -> list[bytes | None]:
    """Some values among plain ones: not the first, the middle or the last one, from which the layout is taken."""
    return [plain, *odd, *[plain] * 5]


@st.composite
def rows(draw: Any) -> list[bytes | None]:
    names = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=6, unique=True))
    dicts = draw(st.lists(st.fixed_dictionaries({name: VALUES[name] for name in names}), min_size=1, max_size=8))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (",", ": "), (",  ", ":")]))
    texts: list[bytes | None] = [json.dumps(row, separators=separators, ensure_ascii=False).encode() for row in dicts]
    return texts


@st.composite
def broken_rows(draw: Any) -> list[bytes | None]:
    texts: list[bytes | None] = draw(rows())
    if draw(st.booleans()):
        # The layout is taken from values that may stay whole.
        texts = [texts[0], *texts, texts[0], *[texts[-1]] * len(texts)]
    for _ in range(draw(st.integers(1, 3))):
        index = draw(st.integers(0, len(texts) - 1))
        text = texts[index] or b"{}"
        at = draw(st.integers(0, len(text) - 1))
        piece = bytes(draw(st.lists(st.sampled_from(list(BYTES)), max_size=3)))
        texts[index] = draw(st.sampled_from([text[:at] + piece + text[at:], text[:at] + piece + text[at + 1 :], None]))
    return texts


@settings(max_examples=150, deadline=None)
@given(rows())
def test_objects_of_one_layout_are_read_as_by_arrow(texts: list[bytes | None]) -> None:
    check_same(texts)


@settings(max_examples=400, deadline=None)
@given(broken_rows())
def test_broken_objects_are_read_or_refused_as_by_arrow(texts: list[bytes | None]) -> None:
    check_same(texts)


NUMBERS = """
    0 -0 7 -7 00 01 -01 +1 1. 1.e5 .5 -.5 - 1e 1e5 1E+5 1e-5 1e+ 1e05 0e1 0.0 -0.0 0x1F 0X1 -0x1 inf
    -inf nan Infinity NaN 1e308 1e309 -1e400 1e-400 4.9e-324 2.4e-324 1.7976931348623159e308 0.1
    0.30000000000000004 123456789012345678901 255 256 -1 9223372036854775807 9223372036854775808
    -9223372036854775808 3.4028236e38 16777217 1_000 1f 1d 1L 1e5.5 1-2 1e99 1e+99 -1.5E-99 1e100 0e999
    1e-100 1e001 null true false True TRUE tru truee fals 0.1.2 1..2 --1 e5 [] {} [1] 1,2 1:2
"""


@pytest.mark.parametrize(
    "number",
    [
        *NUMBERS.split(),
        "",
        " 1",
        "1 ",
        "1\t",
        "\n1",
        "1\0",
        '"1"',
        '""',
        "1" * 400,
        "1" * 32,
        "1" * 33,
        "0." + "1" * 400,
        "1e" + "0" * 40,
    ],
)
@pytest.mark.parametrize("kind", [pa.int64(), pa.uint8(), pa.float64(), pa.float32(), pa.bool_(), pa.string(), None])
def test_a_number_is_read_as_by_arrow(number: str, kind: Any) -> None:
    kinds = {"z": pa.int64(), "a": kind} if kind is not None else {"z": pa.int64()}
    good = b"true" if kind == pa.bool_() else b'"x"' if kind == pa.string() else b"12"
    for end in (b"", b',"z":1'):
        broken, plain = (b'{"y":3,"a":' + text + end + b"}" for text in (number.encode(), good))
        for texts in ([broken] * 3, amid(plain, broken)):
            check_same(list(texts), kinds)


@pytest.mark.parametrize(
    "text",
    [
        *(b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", "ü".encode(), b"\0", b"\x1f", b"\n", b"\x7f"),
        *(b"\\n", b"\\u0041", b"\\", b'"', b'","z":1,"q":"', b"a,", b'a","z":1', b":", b"{}", b"x" * 20_000, b""),
    ],
)
@pytest.mark.parametrize("kinds", [{"a": pa.string(), "z": pa.int64()}, {"z": pa.int64()}])
def test_a_text_is_read_as_by_arrow(text: bytes, kinds: dict[str, Any]) -> None:
    for end in (b'"', b'","z":1'):
        broken, plain = (b'{"y":3,"a":"' + one + end + b"}" for one in (text, b"abc"))
        for texts in ([broken] * 3, amid(plain, broken)):
            check_same(list(texts), kinds)
    for name in (text, b"z"):
        check_same([b'{"y":3,"' + name + b'":1}'] * 3, kinds)


@pytest.mark.parametrize(
    "odd",
    [
        *(b'{"a":1,"b":"x","a":1}', b'{"b":"x","a":1}', b'{"a":1}', b"{}", b'{"a":1,"b":null}', b'{"a":null,"b":"x"}'),
        *(b'{"a":1,"b":"x"} ', b'{"a":1,"b":"x"}}', b'{"a":1,"b":"x","c":2}', b'{"a":1,"b":{"c":"x"}}', b"null", b"1"),
        *(
            b'{"a":1,"b":"x"}{"a":1,"b":"x"}',
            b'{"a":1,"c":"x"}',
            b'{"A":1,"b":"x"}',
            b'{"a":1,"b":"x"',
            b'["a":1,"b":"x"]',
        ),
        *(
            b'{"a":1,"b":x""}',
            b'{"a":1"b",:"x"}',
            b'{"a":1,"b:""x"}',
            b'{"a":1;"b":"x"}',
            b'{"a":1,"b":"x",}',
            b'{,"a":1,"b":""}',
        ),
        *(
            b'{"a":1 ,"b":"x"}',
            b'{ "a":1,"b":"x"}',
            b'{"a" :1,"b":"x"}',
            b'{"a":1,"b":"x" }',
            b'{"a":1,"b":"x",""}',
            b"",
        ),
    ],
)
def test_another_layout_is_read_as_by_arrow(odd: bytes) -> None:
    plain = b'{"a":1,"b":"x"}'
    for texts in ([odd] * 4, amid(plain, odd), [odd, plain, plain], [plain, plain, odd], [plain, odd, plain]):
        for kinds in ({"a": pa.int64(), "b": pa.string()}, {"a": pa.int64()}, {"b": pa.string()}, {"q": pa.int64()}):
            check_same(list(texts), kinds)


@pytest.mark.parametrize("other", [b"x", b"1", b'"', b",", b"}", b""])
def test_each_byte_of_a_value_counts(other: bytes) -> None:
    plain = b'{"customer_number":12,"customer_address":"yz","price":1.5,"is_paid_in_advance":true}'
    kinds = {"customer_number": pa.int64(), "customer_address": pa.string(), "is_paid_in_advance": pa.bool_()}
    for at in range(len(plain)):
        check_same(amid(plain, plain[:at] + other + plain[at + 1 :]), kinds)


@pytest.mark.parametrize("size", range(1, 36))
@pytest.mark.parametrize("first", [b"", b"a", b"abcdefghij"])
def test_each_byte_of_a_name_counts(size: int, first: bytes) -> None:
    name = bytes(97 + index % 26 for index in range(size))
    kinds = {"q" + first.decode(): pa.int64(), name.decode(): pa.string()}
    plain = b'{"q%s":1,"%s":"t"}' % (first, name)
    assert by_layout([plain] * 7, kinds)
    for index in range(size):
        odd = plain.replace(b'"%s":"' % name, b'"%s":"' % (name[:index] + b"_" + name[index + 1 :]))
        assert odd != plain
        assert not by_layout([each or b"" for each in amid(plain, odd)], kinds)


def test_two_broken_values_do_not_make_up_for_each_other() -> None:
    """A quote or a field too many in one value and too few in the next: the counts of all values are right."""
    kinds = {"a": pa.string(), "b": pa.int64()}
    plain = b'{"a":"xx","b":1}'
    for one, other in (
        (b'{"a":"x"","b":1}', b'{"a":"x,"b":1}'),
        (b'{"a":"x","b":1,"b":1}', b'{"a":"x"}'),
        (b'{"a":"x","b":1,"', b'{"b":1}{"a":"x"}'),
        (b'{"a":"x"x,"b":1}', b'{"a":"x","b":1}'),
        (b'{"a":"xx";"b":1}', b'{"a":"x,","b":1}'),
    ):
        for texts in (amid(plain, one, other), amid(plain, other, one)):
            check_same(list(texts), kinds)


def test_a_comma_at_the_end_of_the_last_text_begins_no_field() -> None:
    """One value lacks a comma, and the last one has one more, so close to the end that a name does not fit."""
    plain, lacks, ends = b'{"a":1,"b":"x"}', b'{"a":1;"b":"x"}', b'{"a":1,"b":"x,"}'
    check_same([plain, lacks, plain, plain, plain, ends], {"a": pa.int64(), "b": pa.string()})


def test_what_one_serializer_writes_is_read_by_its_layout() -> None:
    kinds = {"id": pa.int64(), "user": pa.string(), "price": pa.float64(), "paid": pa.bool_(), "day": pa.date32()}
    rows = [
        {"id": n - 5, "user": "ü" * n, "price": n / 7, "paid": n % 3 == 0, "day": "2026-11-2" + str(n), "note": "no"}
        for n in range(10)
    ]
    readable = kinds | {"day": pa.string()}
    spaced = [json.dumps(row, ensure_ascii=False).encode() for row in rows]
    texts = [json.dumps(row, separators=(",", ":"), ensure_ascii=False).encode() for row in rows]
    for each in (spaced, texts):
        assert by_layout(each, readable)
        check_same(list(each), kinds)
        assert serde.json(kinds).decode(values_of([None, *each])).null_count == 1
    # A name that no value has is null, as in Arrow's reader.
    assert by_layout(texts, readable | {"none": pa.int64()})
    check_same(list(texts), kinds | {"none": pa.float64()})
    # Types that are left to Arrow's reader.
    for kind in (pa.timestamp("ms"), pa.decimal128(9, 2), pa.null(), pa.list_(pa.int64())):
        assert json_layout.plain_types(pa.schema([("id", pa.int64()), ("x", kind)])) is None


def test_many_values_are_searched_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_layout, "_STEP_BYTES", 100)
    texts = [b'{"id":%d,"user":"%b","paid":%b}' % (n, b"u" * (n % 9), (b"true", b"false")[n % 2]) for n in range(200)]
    kinds = {"id": pa.int64(), "user": pa.string(), "paid": pa.bool_()}
    assert by_layout(texts, kinds)
    check_same(list(texts), kinds)


def test_a_layout_is_looked_for_again_some_time_after_values_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    columns_of = json_layout.columns_of

    def watched(values: Any, kinds: Any) -> Any:
        looked.append(len(values))
        return columns_of(values, kinds)

    monkeypatch.setattr(json_serde, "columns_of", watched)
    reading = serde.json({"a": pa.int64()})
    plain, odd = b'{"a":1,"b":2}', b'{"a":null,"b":2}'
    for texts in ([plain] * 2, [odd] * 3, *[[plain] * 4] * json_serde._WITHOUT_LAYOUT, [plain] * 5):
        assert reading.decode(values_of(list(texts))).null_count == 0
    assert looked == [2, 3, 5]
    monkeypatch.setattr(json_serde, "ROWS_MIN", 6)
    reading.decode(values_of([plain] * 5))
    assert looked == [2, 3, 5]


def test_threads_that_share_a_serde_do_not_end_the_search_for_a_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of them may count the last array at once, so that the count is below zero."""
    looked: list[int] = []
    monkeypatch.setattr(json_serde, "columns_of", lambda values, kinds: looked.append(len(values)))
    reading = serde.json({"a": pa.int64()})
    reading._without_layout = -1  # type: ignore[attr-defined]
    reading.decode(values_of([b'{"a":1}'] * 3))
    assert looked == [3]
