"""The live views of a terminal, `ottla top` and `ottla streams describe --watch`, frame by frame."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ottla.cli import top
from ottla.cli.streams import command, view
from ottla.cli.streams.view import StreamsSample
from ottla.client import CommittedOffset, TopicPartition
from ottla.operations.rates import ClusterSample
from ottla.spark.streams.last_run import LastRun
from tests.cli.shown_scene import _style, run

_STYLED = re.compile(r"\x1b\[([\d;]*)m")
_SAME = re.compile(r"<(\w+)>([^<]*)</><\1>")
#: What begins a frame: the cursor goes to the corner.
_HOME = "\x1b[H"


def _plain(line: str) -> str:
    """The line with its styles, each once."""
    text = re.sub(r"\x1b\[\?\d+\w", "", _STYLED.sub(lambda found: _style(found[1]), line))
    count = 1
    while count:
        text, count = _SAME.subn(r"<\1>\2", text)
    return re.sub(r"\s+$", "", re.sub(r"\s+</>$", "</>", text.rstrip()))


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[list[str]]]:
    """Runs a command on a terminal until its samples are over, then Ctrl-C: the lines of each frame."""

    def watch(module: ModuleType, *words: str, lines: int = 40) -> list[list[str]]:
        for name, value in {"COLUMNS": "100", "LINES": str(lines), "TERM": "xterm-256color"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setattr(module, "admin", lambda *_: nullcontext())
        code, out, err = run("ottla", list(words), "", terminal=True)
        assert (code, err) == (0, "")
        # The screen of before comes back.
        assert out.startswith("\x1b[?1049h")
        assert "\x1b[?1049l" in out
        frames = [each for each in out.partition("\x1b[?1049l")[0].split(_HOME) if "Ctrl-C" in each]
        return [[line for line in map(_plain, frame.splitlines()) if line] for frame in frames]

    return watch


def played(monkeypatch: pytest.MonkeyPatch, module: ModuleType, samples: Sequence[Any]) -> list[float]:
    """Let the samples come one after another, and Ctrl-C when there are no more; returns the waits between them."""
    waits: list[float] = []
    left = iter(samples)

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == len(samples):
            raise KeyboardInterrupt

    clock = SimpleNamespace(sleep=sleep, gmtime=time.gmtime, strftime=lambda *_: "12:00:00Z")
    monkeypatch.setattr(module, "time", clock)
    source = view if module is command else module
    monkeypatch.setattr(source, "take_sample", lambda *_, **__: next(left))
    return waits


def sample(at: float, ends: dict[tuple[str, int], int], lag: int, **sizes: int) -> ClusterSample:
    starts = dict.fromkeys(ends, 1)
    groups: dict[str, tuple[str, int, int | None]] = {"g": ("Stable", 2, lag), "share": ("Empty", 0, None)}
    return ClusterSample(at, ends, starts, sizes, groups)


CLUSTER = [
    sample(10, {("a", 0): 11, ("a", 1): 21, ("b", 0): 5001}, 70, a=2048, b=100),
    sample(12, {("a", 0): 11, ("a", 1): 31, ("b", 0): 9001, ("new", 0): 1}, 40, a=4096, b=50),
    sample(14, {("a", 0): 12, ("a", 1): 31, ("b", 0): 9001}, 1040, a=4096, b=50),
]


def many(at: float, count: int, groups: int) -> ClusterSample:
    named: dict[str, tuple[str, int, int | None]] = {f"g{n:02}": ("Stable", 1, 100 - n) for n in range(groups)}
    return ClusterSample(at, {(f"t{n:02}", 0): int(at) * (n + 1) for n in range(count)}, {}, {}, named)


TOP = """\
<bold>b:1  </>2 topics, 0 records/s  <dim>12:00:00Z  Ctrl-C to stop</>
<dim>topic  partitions  records  records/s     size  size/s  hottest</>
<bold>a      </>         2       30  <dim>        -</>  2.0 KiB  <dim>     -</>  <dim>      -</>
<bold>b      </>         1    5,000  <dim>        -</>    100 B  <dim>     -</>  <dim>      -</>
<dim>group  state   members  lag  lag/s</>
<bold>g      </>Stable        2   70  <dim>    -</>
<bold>share  </>Empty         0  <dim>  -</>  <dim>    -</>

<bold>b:1  </>3 topics, 2,005 records/s  <dim>12:00:00Z  Ctrl-C to stop</>
<dim>topic  partitions  records  records/s     size     size/s  hottest</>
<bold>b      </>         1    9,000      2,000     50 B  <dim>        -</>  <dim>      -</>
<bold>a      </>         2       40          5  4.0 KiB  1.0 KiB/s        1
<bold>new    </>         1        0  <dim>        -</>  <dim>      -</>  <dim>        -</>  <dim>      -</>
<dim>group  state   members  lag  lag/s</>
<bold>g      </>Stable        2   40    -15
<bold>share  </>Empty         0  <dim>  -</>  <dim>    -</>

<bold>b:1  </>2 topics, 0 records/s  <dim>12:00:00Z  Ctrl-C to stop</>
<dim>topic  partitions  records  records/s     size  size/s  hottest</>
<bold>a      </>         2       41        0.5  4.0 KiB   0 B/s        0
<bold>b      </>         1    9,000          0     50 B   0 B/s  <dim>      -</>
<dim>group  state   members    lag  lag/s</>
<bold>g      </>Stable        2  1,040   +500
<bold>share  </>Empty         0  <dim>    -</>  <dim>    -</>
"""


def test_top_shows_rates_from_the_second_frame_on(
    monkeypatch: pytest.MonkeyPatch, watched: Callable[..., list[list[str]]]
) -> None:
    waits = played(monkeypatch, top, CLUSTER)
    frames = watched(top, "top", "-b", "b:1", "--interval", "3")
    assert waits == [3.0, 3.0, 3.0]
    assert "\n\n".join(map("\n".join, frames)) + "\n" == TOP


def test_a_page_has_room_for_the_busiest_topics_and_says_how_many_are_left_out(
    monkeypatch: pytest.MonkeyPatch, watched: Callable[..., list[list[str]]]
) -> None:
    played(monkeypatch, top, [many(10, 30, 9), many(11, 30, 9)])
    frames = watched(top, "top", "-b", "b:1", lines=18)
    for frame, names in zip(frames, (range(6), range(29, 23, -1)), strict=True):
        # What fills a terminal of 18 lines, with the two that are blank.
        assert len(frame) + 2 == 18
        assert [line.split()[0] for line in frame[2:8]] == [f"<bold>t{number:02}" for number in names]
        assert frame[8] == "<dim>and 24 more topics</>"
        assert [line.split()[0] for line in frame[10:]] == [f"<bold>g{number:02}" for number in range(6)]


STREAMS = LastRun(
    "app",
    0,
    "Topologies:\n",
    "exactly_once_v2",
    [{"id": f"0_{n}", "sources": [["in", n]], "stores": ["counts"]} for n in range(20)],
    {"counts": {"kind": "timestamped_key_value", "key": "string", "value": "long", "window_ms": 0, "stage": 0}},
    [],
)


def offsets(at: float, *done: int) -> StreamsSample:
    places = [TopicPartition("in", n) for n in range(len(done))]
    committed = {place: CommittedOffset(offset) for place, offset in zip(places, done, strict=True)}
    return StreamsSample(at, committed, dict.fromkeys(places, 100))


TASKS = """\
<bold>app  </>0 records/s, lag 70  <dim>12:00:00Z  Ctrl-C to stop</>
<dim>task  reads  lag  records/s  stream time  stores</>
<bold>0_1   </>in-1   <yellow> 40</>  <dim>        -</>  <dim>-          </>  <dim>counts</>
<bold>0_2   </>in-2   <yellow> 30</>  <dim>        -</>  <dim>-          </>  <dim>counts</>
<bold>0_0   </>in-0   <green>  0</>  <dim>        -</>  <dim>-          </>  <dim>counts</>
<bold>0_3   </>in-3   <green>  0</>  <dim>        -</>  <dim>-          </>  <dim>counts</>
<bold>0_4   </>in-4   <green>  0</>  <dim>        -</>  <dim>-          </>  <dim>counts</>
<bold>0_5   </>in-5   <green>  0</>  <dim>        -</>  <dim>-          </>  <dim>counts</>
<dim>and 14 more tasks</>
<dim>store   kind                   key     value  tasks  changelog</>
<bold>counts  </>timestamped_key_value  string  long      20  <dim>app-counts-changelog</>

<bold>app  </>20 records/s, lag 30  <dim>12:00:00Z  Ctrl-C to stop</>
<dim>task  reads  lag  records/s  stream time  stores</>
<bold>0_2   </>in-2   <yellow> 20</>        5.0  <dim>-          </>  <dim>counts</>
<bold>0_1   </>in-1   <yellow> 10</>       15.0  <dim>-          </>  <dim>counts</>
<bold>0_0   </>in-0   <green>  0</>        0.0  <dim>-          </>  <dim>counts</>
<bold>0_3   </>in-3   <green>  0</>        0.0  <dim>-          </>  <dim>counts</>
<bold>0_4   </>in-4   <green>  0</>        0.0  <dim>-          </>  <dim>counts</>
<bold>0_5   </>in-5   <green>  0</>        0.0  <dim>-          </>  <dim>counts</>
<dim>and 14 more tasks</>
<dim>store   kind                   key     value  tasks  changelog</>
<bold>counts  </>timestamped_key_value  string  long      20  <dim>app-counts-changelog</>
"""


def test_an_application_shows_the_tasks_that_are_most_behind(
    monkeypatch: pytest.MonkeyPatch, watched: Callable[..., list[list[str]]]
) -> None:
    monkeypatch.setattr(view, "last_run_of", lambda *_: (STREAMS, None))
    waits = played(monkeypatch, command, [offsets(10, 100, 60, 70), offsets(12, 100, 90, 80)])
    frames = watched(command, "streams", "describe", "app", "-b", "b:1", "--watch", lines=15)
    assert "\n\n".join(map("\n".join, frames)) + "\n" == TASKS
    assert waits == [2.0, 2.0]


def test_a_difference_is_escaped_for_a_person_and_left_for_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla.cli.ottla import topic_copy

    monkeypatch.setattr(topic_copy, "admin", lambda *_: nullcontext())
    monkeypatch.setattr(topic_copy, "admin_of", lambda *_: nullcontext())
    monkeypatch.setattr("ottla.operations.topics.diff.side", lambda *_: None)
    monkeypatch.setattr("ottla.operations.topics.diff.differences", lambda *_: (3, ["partition 0: value \a | b"]))
    words = ["topics", "diff", "a", "b", "-b", "b:1"]
    assert run("ottla", words, "", terminal=False) == (1, "partition 0: value \a | b\n", "")
    assert run("ottla", words, "", terminal=True) == (1, "partition 0: value \\x07 | b\n", "")
