"""A batch is walked as far as it is looked at, and what does not add up is refused."""

from __future__ import annotations

from random import Random

import pytest

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ports import Buffer
from ottla.wire import walk as walking
from ottla.wire.batch import CHECKED, Batch, NewRecord, assemble, build, header_at
from ottla.wire.codec import Codec, compress, decompress_some
from ottla.wire.walk import walk

_NOW = 1_700_000_000_000


def _records(seed: int, count: int) -> list[NewRecord]:
    rng = Random(seed)
    return [
        (
            _NOW + rng.randrange(-500, 100_000),
            rng.choice([None, b"", rng.randbytes(rng.randrange(200))]),
            rng.choice([None, rng.randbytes(rng.randrange(300))]),
            [("h", rng.choice([None, b"x"]))] * rng.randrange(3),
        )
        for _ in range(count)
    ]


def _lying(body: bytes, count: int, codec: Codec = Codec.NONE) -> bytes:
    checked = CHECKED.pack(codec, count - 1, _NOW, _NOW, -1, -1, -1, count)
    return assemble(0, -1, checked, compress(codec, body))


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("count", [1, 3, 2000])
def test_a_walk_sees_what_the_records_say(codec: Codec, count: int) -> None:
    data = build(_records(count, count), base_offset=77, codec=codec)
    header = header_at(data)
    records = Batch(header, memoryview(data)).records()
    seen = list(walk(header, data, whole_records=True))
    assert seen == [
        (each.offset - 77, each.timestamp - header.base_timestamp, each.key is not None) for each in records
    ]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize(
    ("body", "count"),
    [
        (b"\xff\xff\xff\xff\xff\xff", 1),
        (b"", 3),
        (bytes(70), 10),
        (b"\x0e\x00\x00\x00\x01\x01\x00" * 3, 3),
        (b"\x0c\x00\x00\x00\x01\x01\x00", 2),
        (b"\x0c\x00\x00\x00\x01\x01\x00" * 2, 1),
        (b"\x0c\x00\x00\x00\x01\x01\x00" * 2, 2),
        (b"\x0c\x00\x00\x00\x01\x01\x00"[:-1], 1),
        (b"\x0c\x00\x00\x00\x01\x01\x00\x00", 1),
        (b"\x0c\x00\x00\x00\x01\x06\x00", 1),
        (b"\x0c\x00\x00\x00\x01\x01\x09", 1),
        # A header whose key has the size -3, in a record whose fields would add up if that were taken for a step back.
        (b"\x14\x00\x00\x00\x01\x01\x04\x05\x00\x02\x00", 1),
        (b"\x0c\x00\x00\x00\x01\x01\x00", -5),
    ],
)
def test_what_does_not_add_up_is_refused(codec: Codec, body: bytes, count: int) -> None:
    data = _lying(body, count, codec)
    with pytest.raises(KafkaError) as raised:
        list(walk(header_at(data), data, whole_records=True))
    assert raised.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.LZ4, Codec.SNAPPY])
def test_the_first_record_of_millions_costs_a_piece(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    rooms: list[int] = []

    def counted(codec: Codec, data: Buffer, room: int) -> tuple[Buffer, bool]:
        rooms.append(room)
        return decompress_some(codec, data, room)

    monkeypatch.setattr(walking, "decompress_some", counted)
    data = _lying(b"\x0c\x00\x00\x00\x01\x01\x00" * 1_000_000, 1_000_000, codec)
    assert next(iter(walk(header_at(data), data))) == (0, 0, False)
    assert rooms == [64 << 10]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_a_batch_that_would_be_gigabytes_is_refused(codec: Codec) -> None:
    record = b"\xfe\xff\xff\xff\x0f" + bytes(walking.WALK_BYTES_MAX)
    data = _lying(record, 1, codec)
    assert len(data) < 1_000_000
    with pytest.raises(KafkaError) as raised:
        list(walk(header_at(data), data))
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.LZ4, Codec.SNAPPY])
def test_what_is_no_stream_of_its_codec_is_corrupt(codec: Codec) -> None:
    whole = _lying(b"\x0c\x00\x00\x00\x01\x01\x00", 1, codec)
    data = whole[:61] + b"\xffgarbage\xff" * 9
    with pytest.raises(KafkaError) as raised:
        list(walk(header_at(data)._replace(length=len(data) - 12), data))
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
