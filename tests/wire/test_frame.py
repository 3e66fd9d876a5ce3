"""Frames are cut from whatever pieces the network gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.frame import Cutter, frame
from ottla.wire.type import Malformed

BODIES = [b"", b"one", b"two" * 50, b"\0\0\0\1"]
STREAM = b"".join(map(frame, BODIES))


def test_a_frame_has_its_length_before_it() -> None:
    assert frame(b"he", b"ader") == b"\0\0\0\6header"


def test_frames_that_come_whole_are_cut() -> None:
    assert list(Cutter(1000).feed(STREAM)) == BODIES


def test_frames_that_come_byte_by_byte_are_cut() -> None:
    cutter = Cutter(1000)
    assert [body for byte in STREAM for body in cutter.feed(bytes([byte]))] == BODIES
    assert cutter.pending_bytes == 0


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(0, 400), max_size=8))
def test_frames_are_cut_wherever_the_pieces_end(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(frame, bodies))
    cutter = Cutter(100)
    found: list[bytes] = []
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(stream)], strict=True):
        found += cutter.feed(memoryview(stream)[start:end])
    assert found == bodies


def test_what_is_left_of_an_unfinished_frame_is_kept() -> None:
    cutter = Cutter(1000)
    assert list(cutter.feed(STREAM + b"\0\0\0\x05abc")) == BODIES
    assert cutter.pending_bytes == 7
    assert list(cutter.feed(b"de")) == [b"abcde"]


def test_a_caller_that_stops_halfway_loses_no_frame() -> None:
    cutter = Cutter(1000)
    frames = cutter.feed(STREAM)
    assert next(frames) == BODIES[0]
    frames.close()  # type: ignore[attr-defined]
    assert list(cutter.feed(b"")) == BODIES[1:]


@pytest.mark.parametrize("length", [b"\0\0\0\x0b", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"GET "])
def test_a_length_that_is_too_large_or_negative_is_refused_before_its_frame_comes(length: bytes) -> None:
    with pytest.raises(Malformed, match="frame"):
        list(Cutter(10).feed(length))
