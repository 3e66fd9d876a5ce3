"""Decisions about log directories that need no node."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.broker.partitions import preferred_directories
from ottla.broker.partitions.log_dirs import LogDirs
from ottla.broker.partitions.preferred_directories import PreferredDirectories
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.metadata.feature import DIRECTORIES_FROM

_ONE, _TWO, _THREE = (TopicPartition("t", index) for index in range(3))
_HERE, _THERE = Uuid(b"h" * 16), Uuid(b"t" * 16)


def test_a_directory_that_was_asked_for_beforehand_is_used_once_and_only_if_it_still_works() -> None:
    preferred = PreferredDirectories()
    for tp, path in ((_ONE, "/a"), (_TWO, "/failed")):
        preferred.prefer(tp, path)
    dirs: Any = SimpleNamespace(_store=SimpleNamespace(directories=["/a"]), _preferred=preferred)
    assert LogDirs.preferred(dirs, [_ONE, _TWO, _THREE]) == {_ONE: "/a"}
    assert LogDirs.preferred(dirs, [_ONE, _TWO]) == {}


def test_directories_for_partitions_that_never_come_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preferred_directories, "_WISHES_MAX", 2)
    find = Mock(side_effect=KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    leadership = SimpleNamespace(hosted={}, find=find)
    dirs: Any = SimpleNamespace(
        _runtime=None,
        _store=SimpleNamespace(future=lambda _: None, directories=["/a", "/b"]),
        _leadership=lambda: leadership,
        _preferred=PreferredDirectories(),
    )
    for tp, path in ((_ONE, "/a"), (_TWO, "/a"), (_ONE, "/b"), (_THREE, "/a")):
        assert LogDirs._move(dirs, tp, path) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(dirs._preferred) == 2
    assert LogDirs.preferred(dirs, [_ONE, _TWO, _THREE]) == {_ONE: "/b", _THREE: "/a"}, "the oldest is gone"


@pytest.mark.parametrize(
    ("named", "cordoned"),
    [(None, []), ((), []), (("/b/",), ["/b"]), (("/",), ["/"]), (("/b", "*"), ["/a", "/b"])],
)
def test_a_directory_is_cordoned_however_its_path_ends(named: tuple[str, ...] | None, cordoned: list[str]) -> None:
    settings = SimpleNamespace(cordoned_log_dirs=named)
    dirs: Any = SimpleNamespace(
        _runtime=SimpleNamespace(settings=settings), _store=SimpleNamespace(directories=["/a", "/b"])
    )
    assert LogDirs.cordoned(dirs) == cordoned


@pytest.mark.parametrize(
    ("replicas", "known", "is_told"),
    [((1, 2), _THERE, True), ((1, 2), _HERE, False), ((2, 3), _THERE, False)],
)
def test_the_controller_is_told_of_a_place_that_it_does_not_know_of_a_replica_of_ours(
    replicas: tuple[int, ...], known: Uuid, is_told: bool
) -> None:
    partition = SimpleNamespace(replicas=replicas, directories=(known,) * len(replicas))
    image = SimpleNamespace(
        brokers={1: SimpleNamespace(epoch=7)},
        metadata_version=DIRECTORIES_FROM,
        topics={"t": SimpleNamespace(topic_id=_HERE, partitions=[partition])},
        has=lambda tp: tp == _ONE,
    )
    asked: list[Any] = []
    dirs: Any = SimpleNamespace(
        _runtime=SimpleNamespace(image=image, node_id=1, closed=False),
        _controllers=SimpleNamespace(ask=lambda request, done: asked.append(request)),
    )
    dirs._assigned = lambda *_: None
    LogDirs._report_directories(dirs, {_ONE: _HERE})
    assert [(each.broker_epoch, each.directories[0].id) for each in asked] == ([(7, _HERE)] if is_told else [])


@pytest.mark.parametrize("failed", ["/meta", "/a"])
def test_a_start_without_the_metadata_logs_directory_ends_in_words(failed: str) -> None:
    dirs: Any = SimpleNamespace(
        _quorum=SimpleNamespace(directory="/meta", leader=None),
        _runtime=SimpleNamespace(node_id=1),
        _store=SimpleNamespace(failed_directories={failed: OSError("broken")}),
    )
    if failed == "/meta":
        with pytest.raises(
            OttlaError, match="the log directory /meta, which holds the metadata log, has failed: broken"
        ):
            LogDirs.report_failed_directories(dirs)
    else:
        LogDirs.report_failed_directories(dirs)
