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
