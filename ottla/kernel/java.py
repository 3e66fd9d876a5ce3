"""Java's text of a number, which Kafka's settings, quotas and JSON have."""

from __future__ import annotations


def java_double(value: float) -> str:
    """Return Java's `Double.toString`: 0.5, 1.0E10, 1.7976931348623157E308."""
    if value != value or value in (float("inf"), float("-inf")):
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}[repr(value)]
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    mantissa, _, exponent = repr(abs(float(value))).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # The position of the point, relative to the first digit that is not 0.
    point = len(whole) - (len(whole + fraction) - len(digits)) + int(exponent or 0)
    digits = digits.rstrip("0")
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{point - 1}"
