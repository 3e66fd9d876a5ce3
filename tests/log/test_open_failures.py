"""Logs that cannot all be opened: which error is told, what is closed, and which copy of a log is used."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.host.disk import HostDisk
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import NO_UUID, TopicPartition, parse_uuid
from ottla.log import checkpoint
from ottla.log.directory.opening import Opening, await_logs, sort_copies
from ottla.log.directory.store import Store
from ottla.log.log import Log, LogSettings

_NOW_MS = 1_700_000_000_000
_ID, _OTHER_ID = parse_uuid("AAAAAAAAAAAAAAAAAAAAAQ"), parse_uuid("AAAAAAAAAAAAAAAAAAAAAg")
_TP = TopicPartition("t", 0)


def _store(path: Path) -> tuple[Store, list[str]]:
    """A store of three empty logs that was not stopped, and their paths."""
    path.mkdir()
    properties = {"version": "1", "cluster.id": "c", "node.id": "1", "directory.id": "AAAAAAAAAAAAAAAAAAAAAA"}
    checkpoint.write_properties(HostDisk(), f"{path}/{checkpoint.META_PROPERTIES}", properties)
    store = _taken(path)
    store.load(_NOW_MS)
    return store, [store.create("t", _ID, number).path for number in range(3)]


def _taken(path: Path) -> Store:
    return Store.take(HostDisk(), [str(path)], node_id=1, settings_of=lambda _: LogSettings())


@pytest.fixture
def discarded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the logs that are closed without writing."""
    paths: list[str] = []
    discard = Log.discard

    def noted(log: Log) -> None:
        paths.append(log.path)
        discard(log)

    monkeypatch.setattr(Log, "discard", noted)
    return paths


@pytest.mark.parametrize("threads", [True, False])
def test_a_log_with_a_corrupt_topic_id_stops_the_start_with_the_way_out(
    tmp_path: Path, discarded: list[str], threads: bool
) -> None:
    store, paths = _store(tmp_path / "d")
    store.abandon()
    Path(f"{paths[1]}/partition.metadata").write_text("version: 7\n")
    discarded.clear()
    store = _taken(tmp_path / "d")
    with ThreadPoolExecutor(2) as pool, pytest.raises(OttlaError) as error:
        store.load(_NOW_MS, None, pool if threads else None)
    words = f"; restore {paths[1]} from a backup, or move it out of {tmp_path / 'd'}"
    assert str(error.value).endswith(words)
    assert "partition.metadata is not version 0" in str(error.value)
    assert sorted(discarded) == [paths[0], paths[2]]


def test_a_listener_that_ends_a_start_leaves_no_log_open(tmp_path: Path, discarded: list[str]) -> None:
    store, paths = _store(tmp_path / "d")
    store.abandon()
    discarded.clear()

    def listener(opening: Opening) -> None:
        if opening.done == 2:
            raise OttlaError("the node stops")

    with pytest.raises(OttlaError, match="the node stops"):
        _taken(tmp_path / "d").load(_NOW_MS, listener)
    # The third was not open yet.
    assert sorted(discarded) == paths[:2]


class _Log(SimpleNamespace):
    closed = False

    def discard(self) -> None:
        self.closed = True


def _raising(error: Exception) -> Callable[[], Any]:
    def call() -> Any:
        raise error

    return call


@pytest.mark.parametrize(
    "first", [OSError(5, "broken"), KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "unreadable"), OttlaError("corrupt")]
)
def test_the_first_error_counts_after_all_logs_have_come_to_their_end(first: Exception) -> None:
    logs = [_Log(), _Log()]
    calls: list[Any] = [lambda: logs[0], _raising(first), lambda: logs[1], _raising(OSError(28, "later"))]
    with pytest.raises(type(first)) as error:
        await_logs([(TopicPartition("t", number), call) for number, call in enumerate(calls)])
    assert error.value is first
    assert [log.closed for log in logs] == [True, True]
    opened: list[Any] = await_logs([(_TP, calls[0])])
    assert opened == [(_TP, logs[0])]


def _copy(path: str, epoch: int, end_offset: int, topic_id: Any = _ID) -> Any:
    log = SimpleNamespace(epochs=SimpleNamespace(latest=epoch), end_offset=end_offset, topic_id=topic_id)
    return log, SimpleNamespace(path=path, directory_id=f"id of {path}")


@pytest.mark.parametrize(
    ("copies", "named", "best"),
    [
        ([_copy("/a", 5, 1), _copy("/b", 4, 9)], "id of /b", "/a"),
        ([_copy("/a", 4, 8), _copy("/b", 4, 9)], "id of /a", "/b"),
        ([_copy("/a", 4, 9), _copy("/b", 4, 9)], "id of /a", "/a"),
        ([_copy("/a", 4, 9), _copy("/b", 4, 9)], "id of /b", "/b"),
        # A crash has left a copy before its topic id was written.
        ([_copy("/a", 4, 9), _copy("/b", -1, 0, NO_UUID)], "id of /b", "/a"),
    ],
)
def test_the_best_of_several_copies_comes_last(copies: list[Any], named: str, best: str) -> None:
    for given in (list(copies), list(reversed(copies))):
        sort_copies(_TP, given, lambda _: named, None)
        assert given[-1][1].path == best


@pytest.mark.parametrize(("topic_id", "best"), [(_ID, "/a"), (_OTHER_ID, "/b"), (NO_UUID, "/c")])
def test_of_two_topics_of_one_name_the_log_of_the_one_that_there_is_comes_last(topic_id: Any, best: str) -> None:
    for epochs in ((4, 3), (3, 4)):
        # A crash has left the last one before its topic id was written.
        copies = [_copy("/a", epochs[0], 9), _copy("/b", epochs[1], 9, _OTHER_ID), _copy("/c", -1, 0, NO_UUID)]
        sort_copies(_TP, copies, lambda _: None, topic_id)
        assert copies[-1][1].path == best


def test_copies_of_two_topics_of_one_name_stop_the_start() -> None:
    copies: list[Any] = [_copy("/a", 4, 9), _copy("/b", 4, 9, _OTHER_ID)]
    with pytest.raises(OttlaError, match="t-0 has logs of two topics with that name, in /a and /b: remove one"):
        sort_copies(_TP, copies, lambda _: None, None)
