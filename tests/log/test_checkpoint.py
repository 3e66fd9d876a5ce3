"""Whatever stands in a checkpoint file is read, or refused as corrupt; nothing else happens."""

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.host.disk import HostDisk
from ottla.kernel.ids import TopicPartition
from ottla.log.checkpoint import (
    CorruptCheckpoint,
    read_epochs,
    read_offsets,
    read_properties,
    read_topic_id,
    take_clean_shutdown,
    write_offsets,
)

_LINES = st.lists(
    st.one_of(
        st.text(max_size=20),
        st.from_regex(r"[a-z]{1,4} -?[0-9]{1,20} -?[0-9]{1,20}", fullmatch=True),
        st.from_regex(r"-?[0-9]{1,20}( -?[0-9]{1,20})?", fullmatch=True),
        st.sampled_from(["version: 0", "topic_id: AAAAAAAAAAAAAAAAAAAAAA", "0", "1", '{"version":0}', "brokerEpoch"]),
    ),
    max_size=6,
)
_CONTENTS = st.one_of(st.binary(max_size=200), _LINES.map(lambda lines: "\n".join(lines).encode()))


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("recovery-point-offset-checkpoint", read_offsets),
        ("leader-epoch-checkpoint", read_epochs),
        ("meta.properties", read_properties),
        ("partition.metadata", lambda disk, path: read_topic_id(disk, str(Path(path).parent))),
        (".kafka_cleanshutdown", lambda disk, path: take_clean_shutdown(disk, str(Path(path).parent))),
    ],
)
@given(content=_CONTENTS)
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_read_or_refused_as_corrupt(
    name: str, read: Callable[[Any, str], object], content: bytes
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / name
        path.write_bytes(content)
        with contextlib.suppress(CorruptCheckpoint):
            read(HostDisk(), str(path))


_TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,30}", fullmatch=True)


@given(st.dictionaries(st.builds(TopicPartition, _TOPICS, st.integers(0, 1 << 30)), st.integers(0, (1 << 63) - 1)))
@settings(max_examples=50, deadline=None)
def test_offsets_that_were_written_are_read(offsets: dict[TopicPartition, int]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/checkpoint"
        write_offsets(HostDisk(), path, offsets)
        assert read_offsets(HostDisk(), path) == offsets
