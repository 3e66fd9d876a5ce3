"""What a log lets a producer and a coordinator write, asked directly: verified beginnings and markers (KIP-890)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

import pytest

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.log.cleaning.batch import empty_batch
from ottla.log.producer import snapshot
from ottla.log.producer.marker import read_marker
from ottla.log.producer.producer import Producers, ProducerStateEntry
from ottla.log.producer.snapshot import CorruptSnapshot, decode, encode
from ottla.wire.batch import CONTROL, LOG_APPEND_TIME, build, header_at, rewrite
from ottla.wire.checksum import crc32c

_ME = 9
_EPOCH_MAX = 32767


def _add(producers: Producers, sequence: int, *, epoch: int = 0, offset: int = 0, transactional: bool = True) -> None:
    producers.add(_ME, epoch, sequence, offset, offset, 1, transactional)
    producers.validate()


def _check(producers: Producers, sequence: int, *, epoch: int = 0) -> ErrorCode:
    try:
        producers.check(_ME, epoch, sequence, 0, True, True)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def _marker(producers: Producers, epoch: int, *, version: int = 2, coordinator_epoch: int = 0) -> ErrorCode:
    try:
        producers.check_marker(_ME, epoch, coordinator_epoch, version)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


OLD, ORDER = ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("known", [True, False])
def test_no_batch_overtakes_the_first_one_of_its_transaction(known: bool) -> None:
    """Batches 5, 6 and 7 are on their way, and each is refused until the coordinator has answered."""
    producers = Producers()
    if known:
        _add(producers, 4, transactional=False)
    for sequence in (6, 5, 7):
        producers.verify_from(_ME, 0, sequence, False, 1)
    assert [_check(producers, sequence) for sequence in (7, 6)] == [ORDER, ORDER]
    assert _check(producers, 5) is ErrorCode.NONE
    _add(producers, 5, offset=1)
    assert _check(producers, 6) is ErrorCode.NONE


def test_a_newer_epoch_is_verified_from_its_own_first_sequence() -> None:
    producers = Producers()
    producers.verify_from(_ME, 1, 3, False, 1)
    producers.verify_from(_ME, 0, 0, False, 1)
    assert _check(producers, 4, epoch=1) is ORDER
    producers.verify_from(_ME, 2, 8, False, 1)
    assert _check(producers, 8, epoch=2) is ErrorCode.NONE
    assert _check(producers, 9, epoch=2) is ORDER


def test_with_the_second_protocol_a_transaction_of_an_unknown_producer_begins_at_zero() -> None:
    producers = Producers()
    producers.verify_from(_ME, 0, 3, True, 1)
    assert _check(producers, 3) is ORDER
    producers.verify_from(_ME, 0, 0, True, 1)
    assert _check(producers, 0) is ErrorCode.NONE


def test_an_open_transaction_counts_for_its_own_epoch_only() -> None:
    producers = Producers()
    _add(producers, 0, epoch=3)
    assert [producers.has_ongoing_transaction(_ME, epoch) for epoch in (2, 3, 4)] == [False, True, False]
    assert not producers.has_ongoing_transaction(_ME + 1, 3)
    producers.end(_ME, 4, 0, 1, 1, False)
    assert not producers.has_ongoing_transaction(_ME, 4)


@pytest.mark.parametrize(
    ("version", "epoch", "code"),
    [(1, 2, OLD), (1, 3, ErrorCode.NONE), (1, 4, ErrorCode.NONE), (2, 2, OLD), (2, 3, OLD), (2, 4, ErrorCode.NONE)],
)
def test_a_marker_ends_a_transaction_with_an_epoch_that_locks_its_writer_out(
    version: int, epoch: int, code: ErrorCode
) -> None:
    producers = Producers()
    _add(producers, 0, epoch=3)
    assert _marker(producers, epoch, version=version) is code


def test_a_marker_comes_again_when_its_answer_was_lost() -> None:
    producers = Producers()
    _add(producers, 0, epoch=3)
    producers.end(_ME, 4, 0, 1, 1, False)
    assert _marker(producers, 4) is ErrorCode.NONE


def test_the_marker_of_the_last_epoch_cannot_be_one_higher() -> None:
    producers = Producers()
    _add(producers, 0, epoch=_EPOCH_MAX)
    assert _marker(producers, _EPOCH_MAX) is ErrorCode.NONE


def test_an_older_coordinator_writes_no_marker() -> None:
    producers = Producers()
    _add(producers, 0, epoch=3)
    producers.end(_ME, 4, 7, 1, 1, False)
    assert _marker(producers, 5, coordinator_epoch=6) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert _marker(producers, 5, coordinator_epoch=7) is ErrorCode.NONE


def test_a_transaction_is_decided_when_its_marker_is_below_the_high_watermark() -> None:
    producers = Producers()
    _add(producers, 0, epoch=3, offset=2)
    ended = producers.end(_ME, 4, 0, 5, 1, True)
    assert ended is not None
    assert producers.stable_offset_of(ended) == 6
    producers.complete(ended)
    for high_watermark, unstable in ((3, 2), (5, 2), (6, None)):
        assert producers.first_unstable_offset(high_watermark) == unstable
    producers.replicated(5)
    assert producers.first_unstable_offset(5) == 2
    producers.replicated(6)
    assert producers.first_unstable_offset(3) is None


@pytest.mark.parametrize("transactional", [True, False])
def test_only_a_silent_producer_without_a_transaction_is_forgotten(transactional: bool) -> None:
    producers = Producers()
    producers.add(_ME, 0, 0, 0, 0, 1000, transactional)
    producers.expire(1999, 1000)
    assert _ME in producers.by_id
    producers.expire(2000, 1000)
    assert (_ME in producers.by_id) == transactional
    producers.expire(1 << 50, 1000)
    producers.validate()
    assert (producers.first_unstable_offset(1) == 0) == transactional


def test_nothing_is_left_of_transactions_when_a_log_begins_again() -> None:
    """One that had ended but was not replicated, one that is open, and one that is being verified."""
    producers = Producers()
    _add(producers, 0, offset=3)
    ended = producers.end(_ME, 0, 0, 4, 1, aborted=False)
    assert ended is not None
    producers.complete(ended)
    producers.add(_ME + 1, 0, 0, 5, 5, 1, True)
    producers.verify_from(_ME, 0, 5, False, 1000)
    assert producers.first_unstable_offset(4) == 3
    producers.clear()
    assert producers.by_id == {} and producers.first_unstable_offset(0) is None
    assert _check(producers, 6) is ErrorCode.NONE
    producers.validate()


def test_a_beginning_that_nobody_verified_is_forgotten_like_its_producer() -> None:
    producers = Producers()
    producers.verify_from(_ME, 0, 5, False, 1000)
    producers.expire(1999, 1000)
    assert _check(producers, 6) is ORDER
    producers.expire(2000, 1000)
    assert _check(producers, 6) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda data: data[:9], "a producer snapshot of 9 bytes is too short"),
        (lambda data: b"", "a producer snapshot of 0 bytes is too short"),
        (lambda data: b"\0\2" + data[2:], r"unknown producer snapshot version 2 \(expected 1\)"),
        (lambda data: data[:-1] + b"\xff", "the CRC of a producer snapshot is wrong"),
        (lambda data: _resealed(data[6:-1]), "a producer snapshot of 1 producers cannot have"),
        (lambda data: _resealed(data[6:] + b"\0"), "a producer snapshot of 1 producers cannot have"),
        (lambda data: _resealed(b"\0\0\0\2" + data[10:]), "a producer snapshot of 2 producers cannot have"),
        (lambda data: _resealed(b"\xff\xff\xff\xff" + data[10:]), "a producer snapshot of -1 producers cannot have"),
    ],
)
def test_a_snapshot_that_is_not_whole_is_refused(damage: Callable[[bytes], bytes], why: str) -> None:
    producers = Producers()
    _add(producers, 3, epoch=2, offset=4)
    data = encode(producers.by_id)
    [(producer_id, found)] = decode(data)
    assert (producer_id, found.epoch, found.transaction_start, found.last_timestamp) == (_ME, 2, 4, 1)
    with pytest.raises(CorruptSnapshot, match=why):
        decode(damage(data))


def test_a_snapshot_encodes_only_the_producers_that_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And those in full, whatever changed them: the bytes are those of a snapshot that encodes every producer."""
    encoded: list[int] = []
    entry = snapshot._entry

    def counted(producer_id: int, producer: ProducerStateEntry) -> bytes:
        encoded.append(producer_id)
        return entry(producer_id, producer)

    monkeypatch.setattr(snapshot, "_entry", counted)
    producers, random, changed, offset = Producers(), Random(1), set(range(200)), 200
    for producer_id in range(200):
        producers.add(producer_id, 0, 0, producer_id, producer_id, 1, False)
    for turn in range(50):
        taken = encode(producers.by_id)
        assert encoded == sorted(changed), f"turn {turn}"
        for each in producers.by_id.values():
            each.in_snapshot = None
        assert encode(producers.by_id) == taken
        encoded.clear()
        changed = {random.randrange(200) for _ in range(5)}
        for producer_id in changed:
            offset, known = offset + 1, producers.by_id[producer_id]
            if known.transaction_start >= 0 or random.random() < 0.3:
                epoch = known.epoch + random.randrange(2)
                ended = producers.end(
                    producer_id, epoch, known.coordinator_epoch + 1, offset, turn, random.random() < 0.5
                )
                if ended is not None:
                    producers.complete(ended)
            else:
                producers.add(producer_id, known.epoch, turn, offset, offset, turn, random.random() < 0.5)
        producers.validate()


def _resealed(body: bytes) -> bytes:
    """A snapshot with this count and these entries, whose checksum is right."""
    return struct.pack(">hI", 1, crc32c(body)) + body


def test_a_batch_of_an_older_epoch_is_no_duplicate_in_a_newer_one() -> None:
    producers = Producers()
    for sequence in range(3):
        _add(producers, sequence, transactional=False, offset=sequence)
    _add(producers, 0, epoch=1, transactional=False, offset=3)
    for sequence, code in ((2, ORDER), (1, ErrorCode.NONE), (0, ErrorCode.NONE)):
        try:
            sent = producers.check(_ME, 1, sequence, 0, False, True)
        except KafkaError as error:
            assert error.code is code  # noqa: PT017 - one of several
        else:
            assert code is ErrorCode.NONE
            assert (None if sent is None else sent.last_offset) == (3 if sequence == 0 else None)


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0"])
@pytest.mark.parametrize("value", [None, b"\0\0\0\0\0\7"])
def test_a_control_record_without_a_whole_key_is_refused_as_a_record(key: bytes | None, value: bytes | None) -> None:
    data = build([(1, key, value, [])], producer_id=_ME, producer_epoch=0, transactional=True, control=True)
    with pytest.raises(KafkaError, match="a transaction marker is cut off") as refused:
        read_marker(data, header_at(data))
    assert refused.value.code is ErrorCode.INVALID_RECORD


def test_a_marker_says_how_its_transaction_ends_and_who_decided() -> None:
    for kind, aborted in ((0, True), (1, False)):
        record = (5, bytes([0, 0, 0, kind]), b"\0\0\0\0\0\7", ())
        data = build([record], producer_id=_ME, producer_epoch=0, transactional=True, control=True)
        assert read_marker(data, header_at(data)) == (aborted, 7, 5)


@pytest.mark.parametrize("kind", [2, 3, 4, 5, 6, 255])
def test_a_control_record_of_another_kind_is_no_marker(kind: int) -> None:
    """Such as a leader change or a snapshot's header: their values have another form, or none."""
    data = build([(1, bytes([0, 0, 0, kind]), b"", ())], producer_id=_ME, producer_epoch=0, control=True)
    assert read_marker(data, header_at(data)) is None


def test_a_batch_that_the_cleaner_emptied_is_no_marker() -> None:
    data = build([(1, b"\0\0\0\1", b"\0\0\0\0\0\7", ())], producer_id=_ME, producer_epoch=0, control=True)
    empty = empty_batch(header_at(data), data)
    assert read_marker(empty, header_at(empty)) is None


def test_a_marker_in_a_log_with_append_times_has_that_time() -> None:
    record = (5, b"\0\0\0\1", b"\0\0\0\0\0\7", ())
    data = build([record], producer_id=_ME, producer_epoch=0, control=True)
    stamped = rewrite(data, header_at(data), attributes=CONTROL | LOG_APPEND_TIME, max_timestamp=99)
    found = read_marker(stamped, header_at(stamped))
    assert found is not None
    assert found.timestamp == 99


def test_a_batch_that_waits_for_its_coordinator_is_not_let_in_behind_a_marker() -> None:
    """Appended after the marker it would begin a transaction that nothing ends."""
    producers = Producers()
    _add(producers, 4)
    token = producers.verify_from(_ME, 0, 5, False, 1)
    assert producers.is_verifying(_ME, token)
    producers.end(_ME, 0, 0, 1, 1, aborted=True)
    assert not producers.is_verifying(_ME, token)


@pytest.mark.parametrize(("bumps", "epoch", "waits"), [(True, 1, True), (True, 0, False), (False, 1, False)])
def test_the_next_transaction_waits_on_when_the_marker_of_the_one_before_comes(
    bumps: bool, epoch: int, waits: bool
) -> None:
    """With the second protocol the marker has the epoch of the next transaction, which may begin before it comes."""
    producers = Producers()
    _add(producers, 4)
    token = producers.verify_from(_ME, epoch, 0, bumps, 1)
    ended = producers.end(_ME, 1, 0, 1, 1, aborted=False)
    assert ended is not None
    producers.complete(ended)
    assert producers.is_verifying(_ME, token) is waits
    assert _check(producers, 0, epoch=1) is ErrorCode.NONE
    _add(producers, 0, epoch=1, offset=2)
    assert not producers.is_verifying(_ME, token)


def test_an_epoch_below_the_last_one_is_refused_before_the_coordinator_is_asked() -> None:
    producers = Producers()
    producers.check_epoch(_ME, 0)
    _add(producers, 0, epoch=3)
    for epoch in (3, 4):
        producers.check_epoch(_ME, epoch)
    with pytest.raises(KafkaError, match="has epoch 2, its last one is 3") as refused:
        producers.check_epoch(_ME, 2)
    assert refused.value.code is OLD


def test_a_producer_without_an_epoch_is_not_held_to_an_order() -> None:
    producers = Producers()
    assert [_check(producers, 0, epoch=epoch) for epoch in (-2, -1, 0)] == [OLD, ErrorCode.NONE, ErrorCode.NONE]
    _add(producers, 3, epoch=-1, transactional=False)
    assert [_check(producers, sequence, epoch=-1) for sequence in (0, 9)] == [ErrorCode.NONE] * 2
    repeated = producers.check(_ME, -1, 3, 0, False, True)
    assert repeated is not None and repeated.last_offset == 0
    assert _check(producers, 5, epoch=0) is ErrorCode.NONE
    _add(producers, 5, epoch=0, offset=1, transactional=False)
    assert _check(producers, 6, epoch=-1) is OLD
