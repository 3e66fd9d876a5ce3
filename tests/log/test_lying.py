"""Batches whose records do not bear out their header, and what a look into a batch may cost (docs/decisions/0342)."""

import random
from typing import Any

import pytest

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ports import Buffer
from ottla.log import lookup
from ottla.log.log import Log, LogSettings
from ottla.sim.disk import SimDisk
from ottla.wire import walk
from ottla.wire.batch import CHECKED, assemble, build, header_at, rewrite
from ottla.wire.codec import Codec, compress, decompress_beside, decompress_some
from ottla.wire.varint import encode_varint

_NOW = 1_000_000


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(random.Random(3))
    disk.make_directory("/d")
    return disk


def _open(disk: SimDisk, **settings: Any) -> Log:
    return Log.open(disk, "/d/t-0", LogSettings(**settings), now_ms=_NOW)


def _append(log: Log, data: bytes) -> Any:
    return log.append(bytearray(data), leader_epoch=0, now_ms=_NOW)


def _refused(log: Log, data: bytes) -> ErrorCode:
    size, end = log.size, log.end_offset
    with pytest.raises(KafkaError) as caught:
        _append(log, data)
    assert (log.size, log.end_offset) == (size, end), "a refused batch leaves nothing behind"
    return caught.value.code


_RECORD = b"\x10\x00\x00%b\x02k\x02v\x00"
_THREE = b"".join(_RECORD % bytes([2 * index]) for index in range(3))


def _lying(body: bytes, count: int, codec: Codec = Codec.NONE) -> bytes:
    checked = CHECKED.pack(codec, count - 1, _NOW, _NOW, -1, -1, -1, count)
    return assemble(0, -1, checked, compress(codec, body))


@pytest.mark.parametrize("codec", list(Codec))
def test_more_records_than_can_be_are_refused(disk: SimDisk, codec: Codec) -> None:
    log = _open(disk)
    one = _RECORD % b"\0"
    for count in (2**31 - 1, 100_000_000, 1_000_000):
        assert _refused(log, _lying(one, count, codec)) is ErrorCode.INVALID_RECORD
    # Many and small is no lie.
    many = _RECORD % b"\0" * 200_000
    if codec is not Codec.NONE:
        _append(log, _lying(many, 200_000, codec))
        assert log.end_offset == 200_000


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (b"", 3),
        (b"\xffgarbage" * 20, 3),
        (bytes(300), 3),
        (_THREE, 1),
        (_RECORD % b"\0" + b"\0", 1),
        (b"\x11\x00\x00\x00\x02k\x02v\x00", 1),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 1),
        (random.Random(1).randbytes(5000), 40),
    ],
)
def test_a_first_record_that_is_none_is_refused(disk: SimDisk, body: bytes, count: int) -> None:
    assert _refused(_open(disk), _lying(body, count)) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("size", [20, 63, 64, 8191, 8192, 100_000])
def test_a_first_record_ends_where_its_batch_does(disk: SimDisk, size: int) -> None:
    """Lengths of one, two and three bytes: no first record ends behind its batch, and a lone one not before its end."""
    log = _open(disk)
    value = next(rest for rest in range(size) if 5 + rest + len(encode_varint(rest)) == size)
    whole = encode_varint(size) + b"\0\0\0\1" + encode_varint(value) + bytes(value) + b"\0"
    for body, count in ((whole[:-1], 1), (whole[:-1], 2), (whole + b"\0", 1)):
        assert _refused(log, _lying(body, count)) is ErrorCode.INVALID_RECORD
    # An odd length is one below 0, and the deltas of the first record are looked at wherever they stand.
    odd = bytes([whole[0] | 1]) + whole[1:]
    at = len(encode_varint(size)) + 1
    endless, second = whole[:at] + b"\xff" * (size - 1), whole[: at + 1] + b"\xff" * (size - 2)
    for body in (odd, endless, second):
        assert _refused(log, _lying(body, 1)) is ErrorCode.INVALID_RECORD
    _append(log, _lying(whole, 1))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.LZ4])
def test_a_body_that_is_not_of_its_codec_is_refused(disk: SimDisk, codec: Codec) -> None:
    plain = build([(_NOW, b"k", b"v", [])] * 2)
    lie = rewrite(plain, header_at(plain), attributes=codec, max_timestamp=_NOW)
    assert _refused(_open(disk), lie) is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("timestamp", [_NOW, _NOW + 5, _NOW - 500_000, 0])
@pytest.mark.parametrize("size", [0, 50, 57, 58, 100, 8180, 8190, 9000, 100_000])
def test_a_first_record_of_any_shape_is_taken(disk: SimDisk, size: int, timestamp: int) -> None:
    """Lengths of one, two and three bytes, and a base timestamp that is not the first record's."""
    log = _open(disk)
    for count in (1, 3):
        _append(log, build([(timestamp, b"k", b"v" * size, [("h", b"x")])] * count))
        header = header_at(build([(timestamp, None, b"v" * size, [])]))
        checked = CHECKED.pack(0, 0, _NOW - 7, _NOW, -1, -1, -1, 1)
        shifted = encode_varint(timestamp - _NOW + 7) + b"\0\1" + encode_varint(size) + bytes(size) + b"\0"
        body = encode_varint(len(shifted) + 1) + b"\0" + shifted
        assert header.count == 1
        _append(log, assemble(0, -1, checked, body))
    assert log.end_offset == 6


def test_a_compacted_topic_bounds_the_records_of_a_batch(disk: SimDisk) -> None:
    log = _open(disk, cleanup_policy=frozenset({"compact"}))
    many = _lying(_RECORD % b"\0" * 200_000, 200_000, Codec.ZSTD)
    assert _refused(log, many) is ErrorCode.MESSAGE_TOO_LARGE
    # Offsets that do not count up would leave holes for the cleaner.
    assert _refused(log, _lying(_RECORD % b"\0" * 3, 3)) is ErrorCode.INVALID_RECORD


def test_a_look_up_in_a_batch_of_many_records_goes_in_steps(disk: SimDisk) -> None:
    log = _open(disk)
    count = 50_000
    body = b"".join(
        b"\x0e\x00%b\x00\x02k\x01\x00" % encode_varint(1 if index == count - 1 else 0) for index in range(count)
    )
    checked = CHECKED.pack(Codec.ZSTD, count - 1, _NOW, _NOW + 1, -1, -1, -1, count)
    _append(log, assemble(0, -1, checked, compress(Codec.ZSTD, body)))
    steps = 0
    look = lookup.offset_for_timestamp(log, _NOW + 1, log.end_offset)
    while True:
        try:
            next(look)
        except StopIteration:
            break
        steps += 1
        if steps == 3:
            # Meanwhile the segment goes: what was found is still told, and nothing fails.
            log.restart_at(log.end_offset, _NOW)
    assert steps >= 3


def _wide(codec: Codec, count: int, found: int) -> bytes:
    """A batch of 11 plain bytes a record, whose record number `found` is the first of its time."""
    record = b"\x14\x00%b\x00\x01\x08vvvv\x00"
    body = record % b"\x00" * found + record % b"\x02" + record % b"\x00" * (count - found - 1)
    checked = CHECKED.pack(codec, count - 1, _NOW, _NOW + 1, -1, -1, -1, count)
    return assemble(0, -1, checked, compress(codec, body))


@pytest.mark.parametrize("codec", [each for each in Codec if each is not Codec.NONE])
def test_a_look_up_decompresses_little_in_a_step(disk: SimDisk, codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has more in it is asked for, and may be decompressed on any thread between two steps."""
    log = _open(disk)
    _append(log, _wide(codec, 60_000, 55_000))
    rooms: list[int] = []

    def counted(codec: Codec, data: Buffer, room: int) -> tuple[Buffer, bool]:
        rooms.append(room)
        return decompress_some(codec, data, room)

    monkeypatch.setattr(walk, "decompress_some", counted)
    look = lookup.offset_for_timestamp(log, _NOW + 1, log.end_offset)
    asked: list[lookup.Unpack] = []
    found: lookup.LookupResult = None
    while True:
        try:
            unpack = next(look)
        except StopIteration as done:
            found = done.value
            break
        if unpack is not None:
            asked.append(unpack)
            unpack.run()
            assert len(unpack.result()) == 60_000 * 11
    assert sum(rooms) < 1 << 20
    (only,) = asked
    assert only.plain is None, "nothing is held at the end"
    # The deltas of the offsets are 0: what was found is known by its time.
    assert found == (_NOW + 1, 0, 0)


@pytest.mark.parametrize("codec", [each for each in Codec if each is not Codec.NONE])
def test_what_is_decompressed_beside_the_loop_is_what_it_was(codec: Codec) -> None:
    body = random.Random(5).randbytes(100_000) * 20
    packed = compress(codec, body)
    assert bytes(decompress_beside(codec, packed, len(body))) == body
    with pytest.raises(KafkaError) as caught:
        decompress_beside(codec, packed, len(body) - 1)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(KafkaError) as caught:
        decompress_beside(codec, packed[:-5], len(body))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_look_up_in_a_batch_that_is_too_large_fails_alone(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "WALK_BYTES_MAX", 1 << 20)
    log = _open(disk)
    _append(log, _wide(Codec.ZSTD, 100_000, 99_000))
    with pytest.raises(KafkaError) as caught:
        log.offset_for_timestamp(_NOW + 1, log.end_offset)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
