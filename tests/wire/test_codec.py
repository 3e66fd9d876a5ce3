"""The codecs: round trips, other writers' framings, and bytes that are wrong."""

import gzip
import struct

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.codec import Codec, codec_of, compress, decompress
from ottla.wire.varint import decode_varint, encode_varint


@given(st.binary(max_size=2000), st.sampled_from(Codec))
@settings(max_examples=80, deadline=None)
def test_every_codec_gives_back_what_it_took(data: bytes, codec: Codec) -> None:
    assert decompress(codec, compress(codec, data)) == data
    assert decompress(codec, memoryview(compress(codec, memoryview(data)))) == data


@pytest.mark.parametrize("codec", list(Codec))
def test_more_than_one_block_is_given_back(codec: Codec) -> None:
    data = b"".join(b"%d," % number for number in range(60_000))
    packed = compress(codec, data)
    assert decompress(codec, packed) == data
    assert codec is Codec.NONE or len(packed) < len(data)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_levels_are_taken(codec: Codec) -> None:
    data = b"".join(b"%d %d," % (number, number * number % 97) for number in range(20_000))
    sizes = [len(compress(codec, data, level)) for level in (1, 9)]
    assert sizes[1] < sizes[0]
    assert decompress(codec, compress(codec, data, 9)) == data


def test_snappy_is_written_in_javas_framing_and_read_in_both() -> None:
    data = b"abc" * 30_000
    packed = compress(Codec.SNAPPY, data)
    assert packed.startswith(b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1))
    (first,) = struct.unpack_from(">i", packed, 16)
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + first])) == data[:32768]
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data


def test_lz4_frames_have_independent_blocks() -> None:
    packed = compress(Codec.LZ4, b"abc" * 30_000)
    assert packed[:4] == b"\x04\x22\x4d\x18"
    # Version 01, block independence: Java's reader refuses a frame without it.
    assert packed[4] & 0xE0 == 0x60


def test_gzip_is_plain_gzip() -> None:
    assert gzip.decompress(compress(Codec.GZIP, b"hello")) == b"hello"
    assert decompress(Codec.GZIP, gzip.compress(b"hello")) == b"hello"


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_bytes_of_another_kind_are_corrupt(codec: Codec) -> None:
    good = compress(codec, b"hello" * 1000)
    for bad in (b"\xff" * 50, good[: len(good) // 2], b"\x82SNAPPY\x00" + bytes(20) + b"\xff" * 9):
        with pytest.raises(KafkaError) as caught:
            decompress(codec, bad)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(KafkaError) as caught:
        codec_of(5)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_varints_round_trip(value: int) -> None:
    data = encode_varint(value)
    assert decode_varint(data, 0) == (value, len(data))
    with pytest.raises(IndexError):
        decode_varint(data[:-1], 0)


def test_a_varint_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match="does not end"):
        decode_varint(b"\x80" * 11, 0)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_no_more_comes_out_than_is_allowed(codec: Codec) -> None:
    plain = bytes(1_000_000)
    data = compress(codec, plain)
    assert decompress(codec, data, 1_000_000) == plain
    with pytest.raises(KafkaError) as raised:
        decompress(codec, data, 999_999)
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_raw_snappy_block_that_lies_about_its_length_is_given_no_room() -> None:
    # A varint of 2 GiB and then nothing.
    with pytest.raises(KafkaError) as raised:
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x07\x00")
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_what_is_bounded_is_what_any_ratio_comes_to() -> None:
    for ratio_text in (b"x" * 300_000, bytes(range(256)) * 40, b"", b"a"):
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
            assert decompress(codec, compress(codec, ratio_text)) == ratio_text


@pytest.mark.parametrize(("codec", "level"), [(Codec.GZIP, 6), (Codec.LZ4, 9), (Codec.ZSTD, 3)])
def test_the_default_level_is_kafkas(codec: Codec, level: int) -> None:
    data = b"".join(b"%d %d|" % (number, number * number % 1009) for number in range(20_000))
    assert compress(codec, data) == compress(codec, data, level) != compress(codec, data, 1)
