"""Kafka Streams 4.3.1, in its own TopologyTestDriver, gives what tests/streams/test_option.py expects."""

import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from ottla.streams import (
    BufferConfig,
    JoinWindows,
    Materialized,
    SessionWindows,
    SlidingWindows,
    Suppressed,
    TimeWindows,
    TopologyError,
    UnlimitedWindows,
)
from tests.interop import toolchain

pytestmark = pytest.mark.interop

#: What test_option.py says.
_EXPECTED = {
    "sessions without grace": "0 1",
    "sessions backwards": "[10 30, 30 10, 10 0]",
    "windows backwards": "[a0 a20 b10, b10 a20 a0]",
    "a buffer of 500 bytes": "true [a]",
    "a full buffer": "stops",
    "a buffer without a bound": "true 50",
    "the clock of a topic": "[5, 107, 109]",
    "windows emit ON_WINDOW_UPDATE": "[1, 2, 1]",
    "windows emit ON_WINDOW_CLOSE": "[2]",
    "branches": "[cut-loud] [Z] [a]",
    "logging false": "[]",
    "logging true": "[test-counts-changelog]",
    "retention 20": "false",
    "retention 500000": "true",
    "retention 9": "refused",
    "a read-only store": "8 []",
}
_JOIN = JoinWindows.of_time_difference_with_no_grace(10)
_TAKERS: dict[str, Callable[[int], Any]] = {
    "TimeWindows.of": TimeWindows.of,
    "TimeWindows.grace": lambda value: TimeWindows.of_size_and_grace(10, value),
    "TimeWindows.advance_by": TimeWindows.of(10).advance_by,
    "UnlimitedWindows.start_on": UnlimitedWindows.of().start_on,
    "SlidingWindows.of": SlidingWindows.of_time_difference_with_no_grace,
    "SlidingWindows.grace": lambda value: SlidingWindows.of_time_difference_and_grace(10, value),
    "SessionWindows.of": SessionWindows.of_inactivity_gap_with_no_grace,
    "SessionWindows.grace": lambda value: SessionWindows.of_inactivity_gap_and_grace(10, value),
    "JoinWindows.of": JoinWindows.of_time_difference_with_no_grace,
    "JoinWindows.grace": lambda value: JoinWindows.of_time_difference_and_grace(10, value),
    "JoinWindows.before": _JOIN.before,
    "JoinWindows.after": _JOIN.after,
    "Suppressed.until_time_limit": lambda value: Suppressed.until_time_limit(value, BufferConfig.unbounded()),
    "BufferConfig.max_records": BufferConfig.max_records,
    "BufferConfig.max_bytes": BufferConfig.max_bytes,
    "Materialized.with_retention": Materialized.as_("counts").with_retention,
}
#: A negative limit is a mistake; Kafka Streams takes it for none.
_REFUSED_HERE = {
    name: [-11, -10, -1]
    for name in ("Suppressed.until_time_limit", "BufferConfig.max_records", "BufferConfig.max_bytes")
}


def test_kafka_streams_gives_what_the_tests_of_options_say() -> None:
    ran = subprocess.run(toolchain.streams_driver("Options"), capture_output=True, text=True, check=True, timeout=120)
    found = dict(line.split(": ", 1) for line in ran.stdout.splitlines())
    taken = {name: found.pop(name) for name in _TAKERS}
    assert found == _EXPECTED
    for name, take in _TAKERS.items():
        ours = [value for value in (-11, -10, -1, 0, 1, 10, 11) if _is_taken(take, value)]
        assert taken[name] == str(sorted(ours + _REFUSED_HERE.get(name, []))), name


def _is_taken(take: Callable[[int], Any], value: int) -> bool:
    try:
        take(value)
    except TopologyError:
        return False
    return True
