"""Answers are cut wherever the bytes are cut, and a peer's claims cost no memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.net import answer_frames
from ottla.net.answer_frames import AnswerFrames
from ottla.wire.type import Malformed

LIMIT = 1 << 20


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def fed(frames: AnswerFrames, stream: bytes, most: int = LIMIT) -> list[bytes]:
    """What is cut out of `stream`, which comes in pieces of at most `most` bytes."""
    found: list[bytes] = []
    while stream:
        room = frames.room()
        piece, stream = stream[: min(most, len(room))], stream[min(most, len(room)) :]
        room[: len(piece)] = piece
        found += map(bytes, frames.filled(len(piece)))
    return found


@given(st.lists(st.binary(min_size=4, max_size=40), max_size=8), st.integers(1, 60))
def test_frames_are_cut_wherever_the_pieces_end(bodies: list[bytes], most: int) -> None:
    assert fed(AnswerFrames(100), b"".join(map(framed, bodies)), most) == bodies


@pytest.mark.parametrize("most", [1 << 10, 1 << 14, 1 << 20])
def test_a_long_frame_gets_its_memory_as_it_comes(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(answer_frames, "_AT_ONCE_BYTES", 1 << 17)
    body = bytes(range(256)) * 3000
    frames = AnswerFrames(LIMIT)
    assert not fed(frames, framed(body)[: 1 << 16], most)
    assert len(frames.room()) <= 1 << 17
    assert fed(frames, framed(body)[1 << 16 :] + framed(b"next"), most) == [body, b"next"]


@pytest.mark.parametrize("length", [b"\0\0\0\x0b", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"GET "])
def test_a_length_that_is_too_large_or_negative_is_refused_before_its_frame_comes(length: bytes) -> None:
    with pytest.raises(Malformed, match="frame"):
        fed(AnswerFrames(10), length)


@pytest.mark.parametrize("alert", [b"\x15\x03\x03\0\x02\x02\x46", b"\x15\x03\x01\0\x02\x02\x0a"])
def test_a_tls_alert_is_named(alert: bytes) -> None:
    with pytest.raises(Malformed, match=r"it speaks TLS: is security\.protocol=SSL or SASL_SSL missing"):
        fed(AnswerFrames(), alert)


@pytest.mark.parametrize("size", [4, 32 * 1024, 32 * 1024 + 1, 64 * 1024 - 4, 64 * 1024 - 3, 64 * 1024, 100_000])
def test_frames_about_the_size_of_the_shared_buffer_come_whole(size: int) -> None:
    bodies = [b"before", bytes(number % 251 for number in range(size)), b"behind"]
    for most in (1, 1_000, LIMIT):
        assert (
            fed(AnswerFrames(LIMIT), b"".join(map(framed, bodies)), most if size < 200 or most > 1 else 999) == bodies
        )


def test_a_frame_may_be_kept_while_later_ones_come() -> None:
    frames = AnswerFrames(LIMIT)
    kept = []
    for number in range(3):
        for body in (bytes([number]) * 100, bytes([number]) * 200_000):
            data = framed(body)
            while data:
                room = frames.room()
                count = min(len(room), len(data))
                room[:count] = data[:count]
                data = data[count:]
                kept += frames.filled(count)
    assert [(frame[0], len(frame), len(set(bytes(frame)))) for frame in kept] == [
        (number, size, 1) for number in range(3) for size in (100, 200_000)
    ]


def test_a_long_frame_grows_with_what_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_frames, "_AT_ONCE_BYTES", 1 << 17)
    frames = AnswerFrames(1 << 30)
    start = (1 << 29).to_bytes(4, "big")
    assert not fed(frames, start + bytes((1 << 17) + 100))
    assert len(frames.room()) <= 1 << 17, "the length that a peer claims costs no more than twice what it has sent"
