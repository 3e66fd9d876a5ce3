"""Column expressions and serdes in Spark SQL have the results of the engine, on generated expressions and values."""

import random
import struct
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ottla.flow.column.expression import Expression, key, lit, timestamp, value
from ottla.flow.column.row import row
from ottla.flow.error import SerdeError
from ottla.flow.serde import Serde, serde
from ottla.spark.streams.sql import FORMATS, NoCounterpart, Term, term

pytestmark = pytest.mark.timeout(300)

FAILED = "failed"
LONGS = [0, 1, -1, 2, 7, -7, 10, 60_000, 2**31, -(2**31), 2**53 + 1, 2**62, 2**63 - 1, -(2**63), None]
DOUBLES = [
    *(0.0, -0.0, 1.0, -1.5, 0.1, 3.999, -3.999, 1e15, 2.0**53 + 2, 2.0**62, 2.0**63, -(2.0**63), 2.0**64),
    *(5e-324, 2.2250738585072014e-308, 1e-310, 1.7976931348623157e308, float("inf"), -float("inf"), float("nan"), None),
]
TEXTS = [
    *("", "a", "Ab", "value-1", "  x ", "x" * 40, "äÖß", "Σίσυφος ΟΔΟΣ", "\U0001f600b\U0001f600", "e\u0301", "\x00\n"),
    *(
        "İstanbul",
        "ŉǰΐև",
        "ﬃ ﬆ",
        "\ua7cb\ua7dc\u019b",
        "5",
        "-12",
        "+7",
        " 5",
        "5\n",
        "٣",
        "1.5",
        "1e3",
        "0" * 30 + "9",
    ),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "\ufffd\uffff", None),
]
DATA = [b"", b"\x00", b"a", b"\xff\x80", b"\x7f", "ä".encode(), None]
VALUES: dict[str, list[Any]] = {"long": LONGS, "double": DOUBLES, "string": TEXTS, "bytes": DATA}
SPARK = {"long": "bigint", "double": "double", "string": "string", "bytes": "binary", "boolean": "boolean"}


class Expressions:
    """Random expressions of a type, over a string key, a value of type `kind` and a timestamp."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind = kind
        self.random = random.Random(seed)

    def of(self, kind: str, depth: int) -> Expression:
        leaves = [each for each, its in ((key, "string"), (value, self.kind), (timestamp, "long")) if its == kind]
        if depth <= 0:
            constants = [each for each in VALUES.get(kind, [True, False]) if each is not None]
            constant = lit(self.random.choice(constants))
            return self.random.choice([*leaves, *leaves, constant]) if leaves else constant
        pick = self.random.choice
        made: Expression = getattr(self, f"_{kind}")(depth - 1, pick)
        return made if self.random.random() < 0.9 else made.otherwise(self.of(kind, 0))

    def _long(self, depth: int, pick: Any) -> Any:
        a, b = self.of("long", depth), self.of("long", depth)
        return pick(
            [lambda: a + b, lambda: a - b, lambda: a * b, lambda: a // b, lambda: a % b,
             lambda: self.of("string", depth).length(), lambda: self.of("string", depth).cast("long"),
             lambda: self.of("double", depth).cast("long"), lambda: -a]
        )()  # fmt: skip

    def _double(self, depth: int, pick: Any) -> Any:
        a, b, n = self.of("double", depth), self.of("double", depth), self.of("long", depth)
        return pick(
            [lambda: a + b, lambda: a - b, lambda: a * b, lambda: a / b, lambda: n / a, lambda: n + b, lambda: a * n,
             lambda: n.cast("double")]
        )()  # fmt: skip

    def _string(self, depth: int, pick: Any) -> Any:
        a, b = self.of("string", depth), self.of("string", depth)
        part = pick([text for text in TEXTS if text])
        return pick(
            [lambda: a + b, a.lower, a.upper, lambda: a.replace(part[:1], "zz"), lambda: a.replace(part, ""),
             lambda: a.substring(pick([0, 1, 3, 2**40]), pick([0, 1, 2, 2**40])),
             lambda: self.of("long", depth).cast("string")]
        )()  # fmt: skip

    def _bytes(self, depth: int, pick: Any) -> Expression:
        return self.of("bytes", 0)

    def _boolean(self, depth: int, pick: Any) -> Any:
        kind = pick(["long", "double", "string", "bytes"])
        a, b, n = self.of(kind, depth), self.of(kind, depth), self.of("long", depth)
        p, q = self.of("boolean", depth), self.of("boolean", depth)
        part = pick([text for text in TEXTS if text is not None])
        constants = [each for each in VALUES[kind] if each is not None]
        tests = [lambda: a < b, lambda: a <= b, lambda: a > b, lambda: a >= b, lambda: a == b, lambda: a != b,
                 lambda: p & q, lambda: p | q, lambda: ~p, lambda: p == q, a.is_null,
                 lambda: a.is_in(pick(constants), pick(constants)), lambda: self.of("string", depth).contains(part[:1]),
                 lambda: self.of("string", depth).starts_with(part), lambda: self.of("string", depth).ends_with(part),
                 lambda: n < self.of("double", depth)]  # fmt: skip
        return pick(tests)()


def same(one: Any, other: Any) -> bool:
    """Equal bit for bit; NaN equals NaN."""
    if isinstance(one, float) and isinstance(other, float):
        return struct.pack(">d", one) == struct.pack(">d", other) or (one != one and other != other)
    return type(one) is type(other) and one == other


def by_engine(expression: Expression, rows: list[tuple[Any, Any, int]]) -> list[Any]:
    compute = row(expression)
    results = []
    for each in rows:
        try:
            results.append(compute(*each))
        except Exception:
            results.append(FAILED)
    return results


def by_spark(spark: SparkSession, kind: str, rows: list[Any], terms: list[Term]) -> list[list[Any]]:
    """The results of each term."""
    frame = spark.createDataFrame(rows, f"key string, value {SPARK[kind]}, time bigint")
    columns = [f"IF({' OR '.join(each.errors) or 'FALSE'}, 1, 0) e{n}" for n, each in enumerate(terms)]
    found = frame.selectExpr(*columns, *(f"{each.sql} v{n}" for n, each in enumerate(terms))).collect()
    plain = [[bytes(each) if isinstance(each, bytearray) else each for each in line] for line in found]
    return [[FAILED if line[number] else line[len(terms) + number] for line in plain] for number in range(len(terms))]


@pytest.mark.parametrize("kind", VALUES)
def test_expressions_have_the_results_of_the_engine(spark: SparkSession, kind: str) -> None:
    made = Expressions(kind, seed=13)
    expressions = [
        made.of(result, depth) for result in ("boolean", "long", "double", "string") for depth in (1, 1, 1, 2, 2, 3) * 2
    ]
    picked = random.Random(kind)
    rows = [(picked.choice(TEXTS), each, picked.choice([0, 1, 1_700_000_000_000])) for each in VALUES[kind] * 4]
    roots = {"key": Term("string", "key"), "value": Term(kind, "value"), "timestamp": Term("long", "time")}
    results = by_spark(spark, kind, rows, [term(each, roots) for each in expressions])
    failed = 0
    for expression, found in zip(expressions, results, strict=True):
        expected = by_engine(expression, rows)
        failed += expected.count(FAILED)
        wrong = [each for each in zip(rows, expected, found, strict=True) if not same(each[1], each[2])]
        assert not wrong, (expression, wrong[:3])
    assert failed > 0


def test_case_of_every_character(spark: SparkSession) -> None:
    letters = [chr(number) for number in range(1, 0x110000) if not 0xD800 <= number < 0xE000]
    changing = [each for each in letters if each.lower() != each or each.upper() != each or each.isalpha()]
    # Python 3.11 does not know all letters that Spark knows, so unassigned ones are among them.
    rows = [("".join(changing[start : start + 1000]), None, 0) for start in range(0, len(changing), 1000)]
    rows += [(each, None, 0) for each in ("ΑΣ", "Σ", "ΑΣ.", "Σα", "ΑΣ\u0301 ", *letters[0xA700:0xA800])]
    expressions = [key.lower(), key.upper()]
    results = by_spark(spark, "long", rows, [term(each, {"key": Term("string", "key")}) for each in expressions])
    for expression, found in zip(expressions, results, strict=True):
        wrong = [each for each in zip(rows, by_engine(expression, rows), found, strict=True) if each[1] != each[2]]
        assert not wrong, (expression, [ascii(each)[:300] for each in wrong[:2]])


@pytest.mark.parametrize("name", ["bytes", "string", "long", "integer", "double"])
def test_serdes_read_and_write_what_ours_do(spark: SparkSession, name: str) -> None:
    own, form = serde(name), FORMATS[serde(name)]
    assert own is not None
    chance = random.Random(name)
    values = [*VALUES[form.kind], *(chance.randrange(-(2**33), 2**33) for _ in range(50) if form.kind == "long")]
    values += [struct.unpack(">d", chance.randbytes(8))[0] for _ in range(300) if name == "double"]
    written = by_spark(spark, form.kind, [("", each, 0) for each in values], [form.writing(Term(form.kind, "value"))])[
        0
    ]
    expected = [wrote(own, each) for each in values]
    wrong = [each for each in zip(values, expected, written, strict=True) if each[1] != each[2]]
    assert not wrong, wrong[:3]
    size = {"long": 8, "double": 8, "integer": 4}.get(name, 3)
    data = [*DATA, *(chance.randbytes(chance.choice([size, size, size, 1, 9])) for _ in range(300))]
    data += [each for each in expected if isinstance(each, bytes)]
    data += [b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xf0\x9f\x98\x80", b"\xe2\x82"]
    found = by_spark(spark, "bytes", [("", each, 0) for each in data], [form.reading("value")])[0]
    were = [read(own, each) for each in data]
    wrong = [each for each in zip(data, were, found, strict=True) if not same(each[1], each[2])]
    assert not wrong, wrong[:3]


def wrote(own: Serde, given: Any) -> Any:
    if given is None:
        return None
    if given != given:
        return bytes.fromhex("7ff8000000000000")  # Java's NaN
    try:
        return own.serialize("t", given)
    except SerdeError:
        return FAILED


def read(own: Serde, data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return own.deserialize("t", data)
    except SerdeError:
        return FAILED


@pytest.mark.parametrize(
    "expression",
    [value.cast("string"), key.cast("double"), lit("\ud800"), key.contains("\ud800")],
    ids=["repr", "float", "constant", "part"],
)
def test_what_has_no_counterpart_is_refused(expression: Expression) -> None:
    with pytest.raises(NoCounterpart):
        term(expression, {"key": Term("string", "key"), "value": Term("double", "value")})
