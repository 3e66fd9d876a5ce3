"""Frames are used again when nothing refers to them, and only so many are kept."""

from __future__ import annotations

import pytest

from ottla.kernel.memory import Frames

_LEAST = 256 * 1024


def _address(view: memoryview) -> int:
    """Tells frames apart, also when one has the memory of another that is gone."""
    assert isinstance(view.obj, bytearray)
    return id(view.obj)


@pytest.mark.parametrize(("size", "kept"), [(_LEAST - 1, 0), (_LEAST, 1), (_LEAST + 1, 1), (0, 0)])
def test_only_large_frames_are_kept(size: int, kept: int) -> None:
    frames = Frames()
    assert len(frames.take(size)) == size
    assert len(frames.kept) == kept


def test_a_frame_is_used_again_for_what_fits_when_nothing_refers_to_it() -> None:
    frames = Frames(9)
    first = frames.take(_LEAST)
    where, room = _address(first), len(frames.kept[0])
    assert room > _LEAST, "the next response may be a little larger"
    second = frames.take(_LEAST)
    assert _address(second) != where, "the first is still referred to"
    part = first[:1]
    first.release()
    third = frames.take(_LEAST)
    assert _address(third) not in (where, _address(second)), "a part of the first is still referred to"
    part.release()
    count = len(frames.kept)
    again = frames.take(room)
    assert _address(again) == where
    assert len(frames.kept) == count, "it is kept once"
    assert len(again) == room
    again.release()
    third.release()
    larger = frames.take(room + 1)
    assert len(larger) == room + 1
    assert _address(larger) not in (where, _address(second))


def test_the_frame_that_was_used_last_stays_longest() -> None:
    frames = Frames(2, 1 << 30)
    frames.take(_LEAST).release()
    large = 4 * _LEAST
    second = frames.take(large)
    first_frame, second_frame = frames.kept
    frames.take(_LEAST).release()
    assert [id(each) for each in frames.kept] == [id(second_frame), id(first_frame)]
    frames.take(2 * large).release()
    assert id(frames.kept[0]) == id(first_frame), "of two, the one that was used last is kept"
    assert len(frames.kept) == 2
    assert len(second) == large, "what was given out stays whole"


@pytest.mark.parametrize(("bytes_max", "kept"), [(3 * _LEAST, 2), (2 * _LEAST, 1), (0, 0)])
def test_frames_beyond_the_bytes_are_not_kept(bytes_max: int, kept: int) -> None:
    frames = Frames(9, bytes_max)
    views = [frames.take(_LEAST) for _ in range(3)]
    assert len(frames.kept) == kept
    assert [len(view) for view in views] == [_LEAST] * 3
