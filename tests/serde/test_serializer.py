"""What a program may give for a record's parts, and what it hears when it gives something else."""

import pytest

from ottla.client.producer.producer import convert
from ottla.client.settings.producer import ProducerSettings

PLAIN = ProducerSettings.read("localhost:9092", {})


def test_text_and_anything_of_bytes_become_bytes() -> None:
    headers = {"text": "ä", "bytes": b"1", "view": memoryview(b"2"), "array": bytearray(b"3"), "none": None}
    value, key, partition, pairs, timestamp = convert(PLAIN, "t", "ä", bytearray(b"k"), 2, headers, 5)
    assert (partition, timestamp) == (2, 5)
    assert (value, key) == ("ä".encode(), b"k")
    assert pairs == [("text", "ä".encode()), ("bytes", b"1"), ("view", b"2"), ("array", b"3"), ("none", None)]
    assert all(content is None or type(content) is bytes for _, content in pairs or ())


@pytest.mark.parametrize(
    ("value", "key", "headers", "why"),
    [
        ({"a": 1}, None, None, r"a record's value is bytes, str or None, not dict: set value\.serializer"),
        (b"", 5, None, r"a record's key is bytes, str or None, not int: set key\.serializer"),
        (b"", None, {"trace": 1}, "header trace is bytes, str or None, not int"),
        (b"", None, [(b"trace", b"1")], "a header's name is str, not bytes"),
    ],
)
def test_what_cannot_be_sent_is_named(value: object, key: object, headers: object, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        convert(PLAIN, "t", value, key, None, headers, None)
