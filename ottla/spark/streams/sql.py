"""Column expressions and serdes as Spark SQL text with the same meaning.

Rules:
- SQL raises no error. Where `row.py` raises, the SQL value is null and one of the `errors`, SQL conditions that are
  never null, is true.
- Text is a STRING of valid UTF-8, bytes are BINARY, longs BIGINT.
- An expression without an exact counterpart is refused with NoCounterpart.

Doubles have three differences that the SQL mends: Spark's NaN equals itself and is greater than all other numbers, its
cast to BIGINT takes 2**63, and it has no function for the bits of a double.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from ottla.flow.column.expression import LITERALS, Expression
from ottla.flow.column.kind import Type
from ottla.flow.serde import BYTES, DOUBLE, LONG, STRING, Serde, serde
from ottla.kernel.error import OttlaError
from ottla.kernel.named import NamedTuple

INTEGER = serde("integer")
#: No string has as many characters.
_LENGTH_MAX = 1 << 30


class NoCounterpart(OttlaError):
    """An expression or a serde that Spark SQL cannot express exactly. The text says why."""


class Term(NamedTuple):
    """A value in SQL with its type, and the conditions under which it is an error of the record."""

    kind: Type
    sql: str
    errors: tuple[str, ...] = ()


def term(expression: Expression, roots: Mapping[str, Term]) -> Term:
    """An expression in SQL. `roots` are the columns key, value and timestamp. Its types have been checked."""
    operation, options = expression.operation, expression.options
    if operation == "root":
        return roots[options[0]]
    if operation == "literal":
        return Term(LITERALS[type(options[0])], _literal(options[0]))
    if operation in ("field", "struct"):
        raise NoCounterpart(f"{expression!r} is of an object")
    parts = [term(part, roots) for part in expression.parts]
    errors = tuple(error for part in parts for error in part.errors)
    if operation == "otherwise":
        first, second = parts
        later = tuple(f"({first.sql} IS NULL AND {error})" for error in second.errors)
        return Term(first.kind, f"coalesce({first.sql}, {second.sql})", (*first.errors, *later))
    made = _OPERATIONS[operation](*parts, *options)
    return Term(made.kind, made.sql, (*errors, *made.errors))


def _literal(constant: object) -> str:
    match constant:
        case bool():
            return "TRUE" if constant else "FALSE"
        case int():
            return f"CAST('{constant}' AS BIGINT)"
        case float():
            named = "NaN" if math.isnan(constant) else f"{'-' if constant < 0 else ''}Infinity"
            return f"CAST('{constant!r}' AS DOUBLE)" if math.isfinite(constant) else f"CAST('{named}' AS DOUBLE)"
        case bytes():
            return f"X'{constant.hex()}'"
    return text(str(constant))


def text(constant: str) -> str:
    """A constant STRING. NoCounterpart if UTF-8 cannot encode it."""
    try:
        return f"CAST(X'{constant.encode().hex()}' AS STRING)"
    except UnicodeEncodeError as error:
        raise NoCounterpart(f"{constant!r} has a lone surrogate") from error


def _unless_null(result: str, *operands: str) -> str:
    """The condition that a result is null although no operand is."""
    return f"({result} IS NULL AND {' AND '.join(f'{operand} IS NOT NULL' for operand in operands)})"


def _partial(kind: Type, result: str, *operands: Term) -> Term:
    """A result that is null where the operation has none."""
    return Term(kind, result, (_unless_null(result, *(operand.sql for operand in operands)),))


def _double(a: Term) -> str:
    return a.sql if a.kind == "double" else f"CAST({a.sql} AS DOUBLE)"


def _pair(a: Term, b: Term) -> tuple[str, str, bool]:
    """Two operands in one type, and whether it is double."""
    doubles = "double" in (a.kind, b.kind)
    return (_double(a), _double(b), True) if doubles else (a.sql, b.sql, False)


def _arithmetic(sign: str, function: str) -> Callable[[Term, Term], Term]:
    def compute(a: Term, b: Term) -> Term:
        left, right, doubles = _pair(a, b)
        if a.kind == "string":
            return Term("string", f"concat({left}, {right})")
        if doubles:
            return Term("double", f"({left} {sign} {right})")
        return _partial("long", f"{function}({left}, {right})", a, b)

    return compute


def _divide(a: Term, b: Term) -> Term:
    return _partial("double", f"try_divide({_double(a)}, {_double(b)})", a, b)


def _floor_divide(a: Term, b: Term) -> Term:
    # Only the smallest long divided by -1 overflows. A null divisor gives null.
    divisor = f"IF({b.sql} = 0 OR ({b.sql} = -1 AND {a.sql} = {_literal(-(1 << 63))}), NULL, {b.sql})"
    rest = f"try_mod({a.sql}, {b.sql})"
    down = f"CAST(IF({rest} <> 0 AND ({rest} < 0) <> ({b.sql} < 0), 1, 0) AS BIGINT)"
    return _partial("long", f"(({a.sql} div {divisor}) - {down})", a, b)


def _modulo(a: Term, b: Term) -> Term:
    rest = f"try_mod({a.sql}, {b.sql})"
    up = f"IF({rest} <> 0 AND ({rest} < 0) <> ({b.sql} < 0), {b.sql}, CAST(0 AS BIGINT))"
    return _partial("long", f"({rest} + {up})", a, b)


def _compared(sign: str) -> Callable[[Term, Term], Term]:
    def compare(a: Term, b: Term) -> Term:
        left, right, doubles = _pair(a, b)
        if not doubles:
            return Term("boolean", f"({left} {sign} {right})")
        nan = "TRUE" if sign == "<>" else "FALSE"
        tests = f"WHEN {left} IS NULL OR {right} IS NULL THEN NULL WHEN isnan({left}) OR isnan({right}) THEN {nan}"
        return Term("boolean", f"(CASE {tests} ELSE {left} {sign} {right} END)")

    return compare


def _is_in(a: Term, *values: object) -> Term:
    equal = _compared("=")
    return Term(
        "boolean",
        f"({' OR '.join(equal(a, Term(LITERALS[type(each)], _literal(each))).sql for each in values)})",
    )


def _letters(function: str) -> Callable[[Term], Term]:
    """Change of case. Python and Spark agree on ASCII; other letters depend on the Unicode version of each, so those of
    this Python are translated. Only a sigma is Spark's, because its lower case depends on its place in the word.
    """

    def change(a: Term) -> Term:
        one, several = _cases(function)
        other = a.sql
        for letter, changed in several:
            other = f"replace({other}, {text(letter)}, {text(changed)})"
        other = f"translate({other}, {text(one)}, {text(getattr(one, function)())})"
        if function == "lower":
            other = f"IF(contains({a.sql}, {text(_SIGMA)}), lower({other}), {other})"
        return Term("string", f"IF({a.sql} RLIKE {text(_ASCII)}, {function}({a.sql}), {other})")

    return change


_ASCII, _SIGMA = r"^[\x00-\x7f]*\z", "\u03a3"


@cache
def _cases(function: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The letters that this Python changes to one other letter, and those that it changes to several."""
    letters = map(chr, range(sys.maxunicode + 1))
    changed = {letter: getattr(letter, function)() for letter in letters if letter != _SIGMA or function == "upper"}
    one = "".join(letter for letter, other in changed.items() if len(other) == 1 and other != letter)
    return one, tuple((letter, other) for letter, other in changed.items() if len(other) > 1)


#: Python reads at most 4,300 digits.
_DIGITS = r"^[+-]?[0-9]{1,4300}\z"


def _substring(a: Term, start: int, length: int) -> Term:
    return Term("string", f"substring({a.sql}, {min(start, _LENGTH_MAX) + 1}, {min(length, _LENGTH_MAX)})")


def _cast(a: Term, kind: str) -> Term:
    match a.kind, kind:
        case (before, after) if before == after:
            return a
        case "long", "double":
            return Term("double", _double(a))
        case "long", "string":
            return Term("string", f"CAST({a.sql} AS STRING)")
        case "double", "long":
            fits = f"{a.sql} >= {_literal(-(2.0**63))} AND {a.sql} < {_literal(2.0**63)}"
            return _partial("long", f"IF({fits}, try_cast({a.sql} AS BIGINT), NULL)", a)
        case "string", "long":
            return _partial("long", f"IF({a.sql} RLIKE {text(_DIGITS)}, try_cast({a.sql} AS BIGINT), NULL)", a)
    raise NoCounterpart(f"a cast of a {a.kind} to a {kind} has other results in Spark")


def _test(function: str) -> Callable[[Term, str], Term]:
    return lambda a, part: Term("boolean", f"{function}({a.sql}, {text(part)})")


def _logic(word: str) -> Callable[[Term, Term], Term]:
    return lambda a, b: Term("boolean", f"({a.sql} {word} {b.sql})")


_OPERATIONS: dict[str, Callable[..., Term]] = {
    "add": _arithmetic("+", "try_add"),
    "subtract": _arithmetic("-", "try_subtract"),
    "multiply": _arithmetic("*", "try_multiply"),
    "divide": _divide,
    "floor_divide": _floor_divide,
    "modulo": _modulo,
    "less": _compared("<"),
    "less_equal": _compared("<="),
    "greater": _compared(">"),
    "greater_equal": _compared(">="),
    "equal": _compared("="),
    "not_equal": _compared("<>"),
    "and": _logic("AND"),
    "or": _logic("OR"),
    "not": lambda a: Term("boolean", f"(NOT {a.sql})"),
    "is_null": lambda a: Term("boolean", f"({a.sql} IS NULL)"),
    "is_in": _is_in,
    "lower": _letters("lower"),
    "upper": _letters("upper"),
    "length": lambda a: Term("long", f"CAST(char_length({a.sql}) AS BIGINT)"),
    "starts_with": _test("startswith"),
    "ends_with": _test("endswith"),
    "contains": _test("contains"),
    "replace": lambda a, old, new: Term("string", f"replace({a.sql}, {text(old)}, {text(new)})"),
    "substring": _substring,
    "cast": _cast,
}


@dataclass(frozen=True, slots=True)
class Format:
    """A serde in SQL: the type of its values, bytes to value, value to bytes. `reads` and `writes` are conditions that
    hold for valid input.
    """

    kind: str
    read: Callable[[str], str]
    write: Callable[[str], str]
    reads: Callable[[str], str] = lambda data: "TRUE"
    writes: Callable[[str], str] = lambda value: "TRUE"

    def reading(self, column: str) -> Term:
        """The value of a column of bytes."""
        return Term(self.kind, self.read(column), (f"({column} IS NOT NULL AND NOT {self.reads(column)})",))

    def writing(self, value: Term) -> Term:
        """The bytes of a value of this type."""
        return Term("bytes", self.write(value.sql), (f"({value.sql} IS NOT NULL AND NOT {self.writes(value.sql)})",))


def _integer(size: int) -> Format:
    digits, limit = size * 2, 1 << (size * 8 - 1)
    # The digits of a negative number are those of its 64 bits.
    widened = f"lpad(hex(%s), 16, IF(%s >= X'{'80' + '00' * (size - 1)}', 'F', '0'))"
    return Format(
        "long",
        lambda data: f"CAST(conv({widened % (data, data)}, 16, -10) AS BIGINT)",
        lambda value: f"unhex(right(lpad(hex({value}), 16, '0'), {digits}))",
        lambda data: f"(octet_length({data}) = {size})",
        lambda value: f"({value} BETWEEN {_literal(-limit)} AND {_literal(limit - 1)})",
    )


def _to_double(data: str) -> str:
    """The double with these bits: sign, exponent and fraction."""
    bits = f"CAST(conv(substring(hex({data}), 4), 16, 10) AS DOUBLE)"
    head = f"CAST(conv(substring(hex({data}), 1, 3), 16, 10) AS BIGINT)"
    exponent = f"({head} & 2047)"
    magnitude = (
        f"CASE WHEN {exponent} = 2047 THEN IF({bits} = 0, CAST('Infinity' AS DOUBLE), CAST('NaN' AS DOUBLE)) "
        f"WHEN {exponent} = 0 THEN {bits} * pow(2D, -1074D) "
        f"ELSE ({bits} + pow(2D, 52D)) * pow(2D, CAST({exponent} - 1075 AS DOUBLE)) END"
    )
    return f"(CASE WHEN {head} >= 2048 THEN -({magnitude}) WHEN {head} >= 0 THEN {magnitude} END)"


def _from_double(value: str) -> str:
    """The bits of a double, from Java's hexadecimal form: -0x1.8p1."""
    form = f"format_string('%a', {value})"
    fraction = f"rpad(regexp_extract({form}, '\\\\.([0-9a-f]+)p', 1), 13, '0')"
    exponent = f"CAST(regexp_extract({form}, 'p(-?[0-9]+)', 1) AS INT)"
    biased = f"IF(contains({form}, '0x0.'), 0, {exponent} + 1023)"
    head = f"lpad(hex({biased} + IF(startswith({form}, '-'), 2048, 0)), 3, '0')"
    return (
        f"(CASE WHEN isnan({value}) THEN X'7FF8000000000000' WHEN {value} = CAST('Infinity' AS DOUBLE) THEN "
        f"X'7FF0000000000000' WHEN {value} = CAST('-Infinity' AS DOUBLE) THEN X'FFF0000000000000' "
        f"WHEN {value} IS NOT NULL THEN unhex(concat({head}, {fraction})) END)"
    )


#: The serdes that real-time mode reads and writes.
FORMATS: dict[Serde | None, Format] = {
    BYTES: Format("bytes", lambda data: data, lambda value: value),
    STRING: Format(
        "string",
        lambda data: f"CAST({data} AS STRING)",
        lambda value: f"CAST({value} AS BINARY)",
        lambda data: f"is_valid_utf8(CAST({data} AS STRING))",
    ),
    LONG: _integer(8),
    INTEGER: _integer(4),
    DOUBLE: Format("double", _to_double, _from_double, lambda data: f"(octet_length({data}) = 8)"),
}
