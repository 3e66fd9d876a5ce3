"""Compaction against a model: for each key its last value, and what may be missing in between."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.cleaning.plan import cleanable
from ottla.log.log import Log
from ottla.log.producer.producer import NO_EPOCH
from ottla.wire.codec import Codec
from tests.log.compaction import NOW_MS, SETTINGS, compact, end, open_log, pairs, put, transaction

_KEYS = st.sampled_from(["a", "b", "c", "a-key-that-is-hashed"])
_VALUES = st.one_of(st.none(), st.text("xyz", max_size=40))
_BATCHES = st.lists(st.tuples(_KEYS, _VALUES), min_size=1, max_size=4)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), _BATCHES, st.sampled_from([Codec.NONE, Codec.LZ4, Codec.ZSTD])),
        st.tuples(st.just("commit"), _BATCHES, st.none()),
        st.tuples(st.just("abort"), _BATCHES, st.none()),
        st.tuples(st.just("compact"), st.integers(1, 6), st.integers(0, 1500)),
        st.tuples(st.just("roll"), st.none(), st.none()),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(steps=_STEPS)
def test_whoever_reads_a_cleaned_log_ends_up_with_the_latest_values(steps: list[tuple[str, Any, Any]]) -> None:
    log = open_log()
    written: dict[int, tuple[str, str | None]] = {}
    latest: dict[str, str | None] = {}
    sequence, now_ms = 0, NOW_MS
    for what, first, second in steps:
        before = log.end_offset
        if what == "put":
            put(log, *first, codec=second)
        elif what in ("commit", "abort"):
            transaction(log, 7, *first, sequence=sequence)
            sequence += len(first)
            end(log, 7, commit=what == "commit")
        elif what == "roll":
            log.roll(NOW_MS)
        elif cleanable(log, now_ms) is not None:
            now_ms += second
            compact(log, now_ms, keys_max=first)
        if what in ("put", "commit"):
            for index, (key, value) in enumerate(first):
                written[before + index] = (key, value)
                latest[key] = value
        assert log.producers.by_id.get(7) is None or log.producers.by_id[7].epoch != NO_EPOCH
        _must_hold(log, written, latest, sequence)
    reopened = Log.open(log.disk, "/t-0", SETTINGS, now_ms=NOW_MS)
    assert reopened.end_offset == log.end_offset
    _must_hold(reopened, written, latest, sequence)


def _must_hold(
    log: Log, written: dict[int, tuple[str, str | None]], latest: dict[str, str | None], sequence: int
) -> None:
    hidden = [(each.first_offset, each.last_offset) for each in log.aborted(0, log.end_offset)]
    committed = [pair for pair in pairs(log) if not any(first <= pair[0] < last for first, last in hidden)]
    for offset, key, value in committed:
        assert written[offset] == (key, value)
    offsets = [offset for offset, _, _ in committed]
    assert offsets == sorted(set(offsets))
    found = {key: value for _, key, value in committed}
    # A deleted key may be gone without a trace.
    assert {k: v for k, v in found.items() if v is not None} == {k: v for k, v in latest.items() if v is not None}
    if sequence:
        assert log.producers.by_id[7].last_sequence == sequence - 1
    for segment in log.segments:
        headers = dict(segment.headers())
        assert all(headers[at].last_offset == offset for offset, at in segment.offset_index.entries())
        assert segment.max_timestamp == max((each.max_timestamp for each in headers.values()), default=-1)
