"""Statistics about the records of a topic: exact counts, sampled sizes, bounded memory, and how they are shown."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.cli.ottla import topic_analyze
from ottla.operations.topics import analysis
from ottla.operations.topics.analysis import Analysis, Sizes


def record(value: bytes | None = b"v", key: bytes | None = None, **more: Any) -> Any:
    return SimpleNamespace(**{"partition": 0, "timestamp": 0, "headers": (), "value": value, "key": key, **more})


def analyzed(*records: Any) -> dict[str, Any]:
    found = Analysis()
    for each in records:
        found.add(each)
    return found.document()


def test_sizes_are_counted_and_their_percentiles_are_of_the_sample() -> None:
    sizes = Sizes(random.Random(0))
    assert sizes.document() == {"count": 0, "bytes": 0, "mean": 0, "p50": 0, "p95": 0, "p99": 0, "max": 0}
    for length in range(100, 0, -1):
        sizes.add(length)
    assert sizes.document() == {"count": 100, "bytes": 5050, "mean": 50.5, "p50": 51, "p95": 96, "p99": 100, "max": 100}
    one = Sizes(random.Random(0))
    one.add(7)
    assert one.document() == {"count": 1, "bytes": 7, "mean": 7.0, "p50": 7, "p95": 7, "p99": 7, "max": 7}


def test_a_sample_is_as_large_as_it_may_be_and_has_later_lengths_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "_SAMPLE", 50)
    sizes = Sizes(random.Random(1))
    for length in range(1000):
        sizes.add(length)
    assert len(sizes._sample) == 50
    # Each length is as likely as any other to be in it.
    assert 5 < sum(length < 500 for length in sizes._sample) < 45
    assert sizes._sample != list(range(50))
    assert sizes.document()["max"] == 999


def test_records_are_counted_by_what_they_have() -> None:
    found = analyzed(
        record(b'{"a":1,"b":"x"}', b"k", partition=1, timestamp=3000, headers=(("h", b""), ("i", None))),
        record(b'{"a":1.5}', b"k", timestamp=1000, headers=(("h", b"1"),)),
        record(b"[1]", b"kk", timestamp=-1),
        record(None, None, partition=1, timestamp=2000),
        record(b"text"),
    )
    assert (found["records"], found["tombstones"], found["without_key"]) == (5, 1, 2)
    assert (found["first_timestamp"], found["last_timestamp"], found["records_per_s"]) == (0, 3000, 1.667)
    assert found["partitions"] == {0: 3, 1: 2}
    assert (found["distinct_keys"], found["distinct_keys_is_least"]) == (2, False)
    assert found["top_keys"] == [{"key": "k", "records": 2}, {"key": "kk", "records": 1}]
    assert (found["key_bytes"]["bytes"], found["key_bytes"]["count"]) == (4, 3)
    assert (found["value_bytes"]["bytes"], found["value_bytes"]["count"]) == (31, 4)
    assert found["values"] == {"JSON": 3, "text": 1}
    assert found["fields"] == {
        "a": {"types": {"int": 1, "float": 1}, "share": 0.6667},
        "b": {"types": {"text": 1}, "share": 0.3333},
    }
    assert found["headers"] == {"h": 2, "i": 1}


def test_records_without_a_time_have_no_rate() -> None:
    found = analyzed(record(timestamp=-1), record(timestamp=-1))
    assert (found["first_timestamp"], found["last_timestamp"], found["records_per_s"]) == (None, None, None)
    found = analyzed(record(timestamp=5000), record(timestamp=5000))
    assert (found["first_timestamp"], found["last_timestamp"], found["records_per_s"]) == (5000, 5000, None)
    assert analyzed()["records"] == 0


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b"1", "JSON"),
        (b"{", "text"),
        ("\u00e9".encode(), "text"),
        (b"\xff", "binary"),
        (b"\0\0\0\0\1\xff", "with a schema id (registry)"),
        (b"\0\0\0\0\xff", "binary"),
        (b"\1\0\0\0\1\xff", "binary"),
        (b"[" * 100_000, "text"),
    ],
)
def test_values_are_told_by_their_bytes(value: bytes, kind: str) -> None:
    assert analyzed(record(value))["values"] == {kind: 1}


def test_each_type_of_json_has_its_name() -> None:
    value = b'{"a":{},"b":[],"c":"","d":true,"e":1,"f":1.0,"g":null}'
    kinds = {name: next(iter(field["types"])) for name, field in analyzed(record(value))["fields"].items()}
    assert kinds == dict(zip("abcdefg", ("object", "list", "text", "bool", "int", "float", "null"), strict=True))


def test_names_and_keys_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "_KEYS_MAX", 2)
    monkeypatch.setattr(analysis, "_FIELDS_MAX", 2)
    keys = [b"a", b"b", b"c", b"a", b"c"]
    found = analyzed(
        *(record(b'{"f%s":1}' % key, key, headers=((f"h{key.decode()}", None),)) for key in keys), record(b"{}")
    )
    assert (found["distinct_keys"], found["distinct_keys_is_least"]) == (2, True)
    assert found["top_keys"] == [{"key": "a", "records": 2}, {"key": "b", "records": 1}]
    assert sorted(found["fields"]) == ["fa", "fb"]
    assert found["headers"] == {"ha": 2, "hb": 1}
    monkeypatch.undo()
    top = analyzed(*(record(key=b"%d" % (number % 7)) for number in range(70)))["top_keys"]
    assert len(top) == 5


@pytest.mark.parametrize(
    ("records", "lines"),
    [
        (
            [record(b'{"a":1}', b"k", timestamp=1_000_000_000_000), record(None, timestamp=1_000_000_001_000)],
            [
                "time\t2001-09-09T01:46:40.000Z to 2001-09-09T01:46:41.000Z (1 s)",
                "rate\t2.0/s",
                "values\t1 JSON",
                "tombstones\t1",
                "value size\tmean 7 B, p50 7 B, p99 7 B, max 7 B",
                "key size\tmean 1 B, p50 1 B, p99 1 B, max 1 B",
                "keys\t1 distinct, 1 record without a key",
                "top keys\tk (1)",
                "partitions\t0: 2",
                "headers\t",
                "a\tint\t100.0%",
            ],
        ),
        (
            [],
            [
                "time\t",
                "rate\t",
                "values\t",
                "tombstones\t0",
                "value size\t",
                "key size\t",
                "keys\t0 distinct, 0 records without a key",
                "top keys\t",
                "partitions\t",
                "headers\t",
            ],
        ),
    ],
)
def test_statistics_are_shown_line_by_line(
    capsys: pytest.CaptureFixture[str], records: list[Any], lines: list[str]
) -> None:
    topic_analyze._print("t", analyzed(*records))
    assert capsys.readouterr().out.splitlines() == lines


def test_a_count_of_keys_that_is_bounded_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analysis, "_KEYS_MAX", 1)
    topic_analyze._print("t", analyzed(record(key=b"a"), record(key=b"b"), record(headers=(("h", b""),))))
    out = capsys.readouterr().out
    assert "keys\tat least 1 distinct, 1 record without a key\n" in out
    assert "headers\th (1)\n" in out
