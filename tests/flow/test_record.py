"""A record is never changed: each `with_...` gives another one, which differs in that alone."""

import numpy as np
import pytest

from ottla.streams import FixedKeyRecord, Record

HEADERS = (("h", b"1"),)


@pytest.mark.parametrize("kind", [Record, FixedKeyRecord])
def test_a_part_of_a_record_is_another_in_a_copy(kind: type[Record]) -> None:
    one = kind("k", "v", 5, HEADERS)
    assert one.with_value("w") == kind("k", "w", 5, HEADERS)
    assert one.with_timestamp(6) == kind("k", "v", 6, HEADERS)
    assert one.with_headers(()) == kind("k", "v", 5, ())
    assert all(type(each) is kind for each in (one.with_value("w"), one.with_timestamp(6), one.with_headers(())))
    assert (one.key, one.value, one.timestamp, one.headers) == ("k", "v", 5, HEADERS)
    others = [kind("l", "v", 5, HEADERS), kind("k", "w", 5, HEADERS), kind("k", "v", 6, HEADERS), kind("k", "v", 5)]
    assert one not in others
    of_numpy = one.with_timestamp(np.int64(6)).timestamp  # type: ignore[arg-type]
    assert (of_numpy, type(of_numpy)) == (6, int)
    for invalid in (-1, 1 << 63, 1.5, True, None, np.int64(-1)):
        with pytest.raises(ValueError, match=f"invalid timestamp: {invalid} "):
            one.with_timestamp(invalid)  # type: ignore[arg-type]


def test_the_key_is_another_in_a_copy_where_it_may_be() -> None:
    assert Record("k", "v", 5, HEADERS).with_key("l") == Record("l", "v", 5, HEADERS)
    with pytest.raises(Exception, match="key"):
        FixedKeyRecord("k", "v", 5).with_key("l")
