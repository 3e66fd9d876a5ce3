"""The checker itself: it must see what it is there to see."""

import random

import pytest

from tests.crash.check import check_producers, check_reader
from tests.crash.inventory import Entry
from tests.crash.load import IdempotentProducer, Reader, Sent


def _entry(offset: int, value: bytes) -> Entry:
    return Entry(offset, 0, None, value, (), 0, 1, 0, offset, False, False)


def _log(*values: bytes) -> list[Entry]:
    return [_entry(offset, value) for offset, value in enumerate(values)]


def _producer(*sent: Sent) -> IdempotentProducer:
    producer = IdempotentProducer("", "t", "", 1, "a")
    producer.sent = list(sent)
    return producer


_FIRST = Sent(0, (b"a", b"b"), 0)
_SECOND = Sent(0, (b"c",), 2)
_UNKNOWN = Sent(0, (b"d", b"e"), None)


def test_what_is_as_promised_passes() -> None:
    assert check_producers([_log(b"a", b"b", b"c")], [_producer(_FIRST, _SECOND)]) == 3
    assert check_producers([_log(b"a", b"b", b"c")], [_producer(_FIRST, _SECOND, _UNKNOWN)]) == 3
    assert check_producers([_log(b"a", b"b", b"c", b"d", b"e")], [_producer(_FIRST, _SECOND, _UNKNOWN)]) == 3


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (_log(b"a", b"b"), "is lost"),
        (_log(b"a"), "is torn"),
        (_log(b"a", b"b", b"c", b"c"), "is at 3|is there twice"),
        (_log(b"a", b"b", b"c", b"x"), "nobody sent"),
        (_log(b"c", b"a", b"b"), "is at 1"),
        (_log(b"a", b"b", b"c", b"d"), "is torn"),
        (_log(b"a", b"b", b"c", b"e"), "half of a batch"),
    ],
    ids=["lost", "torn", "doubled", "foreign", "moved", "half of the last", "the other half"],
)
def test_what_is_not_as_promised_is_seen(log: list[Entry], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_producers([log], [_producer(_FIRST, _SECOND, _UNKNOWN)])


def test_records_out_of_a_producers_order_are_seen() -> None:
    with pytest.raises(AssertionError, match="is before what was sent before it"):
        check_producers(
            [_log(b"c", b"a", b"b")], [_producer(_FIRST._replace(base_offset=None), Sent(0, (b"c",), None))]
        )


def test_a_record_that_was_served_and_changed_is_seen() -> None:
    reader = Reader("", "t", 0)
    reader.served = [(0, b"a"), (1, b"b")]
    assert check_reader(_log(b"a", b"b", b"c"), reader) == 2
    with pytest.raises(AssertionError):
        check_reader(_log(b"a", random.Random(1).randbytes(1)), reader)
