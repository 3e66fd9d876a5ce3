"""What a consumer's fetch gets from leaders and followers, and from a log that cannot be read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.broker.handlers.fetch import fetch
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.replica.hosted import Fetched
from ottla.replica.selector import LEADER
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic

NONE, NOT_LEADER = ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER
_ID = Uuid(b"t" * 16)


class _StandIn:
    """A replica whose records are all of its log."""

    def __init__(self) -> None:
        self.tp, self.high_watermark, self.leader_epoch = ("t", 0), 10, 4
        self.log = SimpleNamespace(last_stable_offset=9, start_offset=2, high_watermark=10)
        records: Any = SimpleNamespace(size=3, bytes=lambda: b"abc")
        self.read = Mock(return_value=Fetched(records, 10, 9, 2, None))
        self.check_epoch = Mock()
        self.end_offset_for_epoch = Mock(return_value=(4, 7))


class _Leader(_StandIn):
    """A replica that leads."""


class _Follower(_StandIn):
    """A replica that follows."""


@pytest.fixture(autouse=True)
def _kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.handlers.fetch.Partition", _Leader)
    monkeypatch.setattr("ottla.broker.handlers.fetch.FollowedPartition", _Follower)


class _Node:
    """A node that leads partition 0 of "t", unless it follows it."""

    def __init__(self, leader: Any = None, follower: Any = None, *, nearest: int = LEADER) -> None:
        self.leader, self.hosted = leader, {("t", 0): follower} if follower is not None else {}
        self.checked: list[Any] = []
        self.node: Any = Mock(
            hosted=self.hosted,
            authorizer=None,
            settings=Mock(fetch_max_bytes=1000),
            quotas=Mock(active=False),
            image=SimpleNamespace(topics={}),
        )
        self.node.leader_of = self._leader_of
        self.node.topic_name = {_ID: "t"}.get
        self.node.fetch_sessions.create.return_value = None
        self.node.replication.nearest.return_value = nearest
        self.node.log_dirs.check = lambda log, error: self.checked.append((log, error))

    def _leader_of(self, topic: str, index: int) -> Any:
        if self.leader is None:
            raise KafkaError(NOT_LEADER)
        return self.leader

    def fetch(
        self, version: int = 12, *, rack: str = "", max_bytes: int = 50, offset: int = 5, epoch: int = -1, **more: Any
    ) -> Any:
        """The answer about partition 0."""
        connection = Mock(closed=False)
        call: Any = Mock(version=version, connection=connection, node=self.node, is_long=False)
        part = FetchPartition(
            partition=0,
            fetch_offset=offset,
            partition_max_bytes=max_bytes,
            current_leader_epoch=4,
            last_fetched_epoch=epoch,
        )
        topic = FetchTopic(
            topic="t" if version < 13 else "", topic_id=_ID if version >= 13 else Uuid(bytes(16)), partitions=[part]
        )
        request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=400, rack_id=rack, topics=[topic], **more)
        response: Any = fetch(call, request)
        (answered,) = response.responses
        (data,) = answered.partitions
        return data


def test_a_leader_reads_what_the_partition_and_the_request_allow() -> None:
    node = _Node(_Leader())
    data = node.fetch(isolation_level=1)
    assert (data.error_code, data.records, data.high_watermark, data.log_start_offset) == (NONE, b"abc", 10, 2)
    node.leader.check_epoch.assert_called_once_with(4)
    node.leader.read.assert_called_once_with(5, 50, 1, min_one_batch=True)
    node.fetch(max_bytes=700)
    assert node.leader.read.call_args.args == (5, 400, 0)
    node.node.settings.fetch_max_bytes = 300
    node.fetch(max_bytes=700)
    assert node.leader.read.call_args.args == (5, 300, 0)


@pytest.mark.parametrize(("version", "code"), [(10, NOT_LEADER), (11, NONE), (13, NONE)])
def test_a_follower_serves_consumers_that_know_of_followers(version: int, code: ErrorCode) -> None:
    node = _Node(follower=_Follower())
    data = node.fetch(version)
    assert (data.error_code, data.records) == (code, b"" if code else b"abc")


@pytest.mark.parametrize("hosted", [None, _Leader()], ids=["nothing", "a leader that resigns"])
def test_what_is_followed_by_nobody_here_is_not_served(hosted: Any) -> None:
    data = _Node(follower=hosted).fetch(12)
    assert (data.error_code, data.high_watermark, data.log_start_offset) == (NOT_LEADER, -1, -1)


def test_another_error_than_the_wrong_leader_is_not_overruled_by_a_follower() -> None:
    node = _Node(follower=_Follower())

    def fails(topic: str, index: int) -> Any:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    node.node.leader_of = fails
    assert node.fetch().error_code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize(("version", "code"), [(5, NOT_LEADER), (6, ErrorCode.KAFKA_STORAGE_ERROR)])
def test_a_consumer_that_knows_of_no_storage_error_looks_for_another_leader(version: int, code: ErrorCode) -> None:
    node = _Node(_Leader())
    for failure in (OSError(5, "Input/output error"), KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)):
        node.leader.read.side_effect = failure
        assert node.fetch(version).error_code == code


@pytest.mark.parametrize(
    ("rack", "nearest", "preferred"), [("r", 3, 3), ("r", LEADER, -1), ("", 3, -1)], ids=["near", "here", "no rack"]
)
def test_a_consumer_in_a_rack_is_sent_to_the_nearest_replica(rack: str, nearest: int, preferred: int) -> None:
    node = _Node(_Leader(), nearest=nearest)
    data = node.fetch(rack=rack)
    assert (data.preferred_read_replica, data.records) == (preferred, b"abc" if preferred < 0 else b"")
    assert (data.high_watermark, data.last_stable_offset, data.log_start_offset, data.error_code) == (10, 9, 2, NONE)
    if rack:
        node.node.replication.nearest.assert_called_once_with(node.leader, rack, 5)


def test_a_follower_sends_no_one_elsewhere() -> None:
    node = _Node(follower=_Follower(), nearest=3)
    data = node.fetch(rack="r")
    assert (data.preferred_read_replica, data.records) == (-1, b"abc")


@pytest.mark.parametrize(
    ("fetched", "offset", "found", "diverges"),
    [
        (-1, 5, (4, 7), None),
        (4, 5, (4, 7), None),
        (4, 7, (4, 7), None),
        (4, 8, (4, 7), (4, 7)),
        (5, 5, (4, 7), (4, 7)),
        (5, 5, (-1, -1), "out of range"),
        (5, 5, (4, -1), "out of range"),
        (5, 2, (4, 7), (4, 7)),
        (5, 1, (4, 7), "out of range"),
    ],
)
def test_a_log_that_has_parted_is_told_where(fetched: int, offset: int, found: Any, diverges: Any) -> None:
    node = _Node(_Leader())
    node.leader.end_offset_for_epoch.return_value = found
    data = node.fetch(offset=offset, epoch=fetched)
    if diverges == "out of range":
        assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        return
    assert data.error_code == NONE
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (diverges or (-1, -1))
    assert data.records == (b"abc" if diverges is None else b"")
    assert (data.high_watermark, data.last_stable_offset, data.log_start_offset) == (10, 9, 2)


def test_a_log_that_cannot_be_read_fails_alone_and_its_directory_is_checked(caplog: pytest.LogCaptureFixture) -> None:
    node = _Node(_Leader())
    failure = OSError(5, "Input/output error")
    node.leader.read.side_effect = failure
    data = node.fetch()
    assert (data.error_code, data.records) == (ErrorCode.KAFKA_STORAGE_ERROR, b"")
    assert node.checked == [(node.leader.log, failure)]
    assert "cannot be read: [Errno 5] Input/output error" in caplog.text


def test_each_partition_is_read_with_the_rights_of_the_client() -> None:
    node = _Node(_Leader())

    def denies(call: Any, topic: str) -> None:
        assert topic == "t"
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    node.node.authorizer = Mock(check_read=denies)
    data = node.fetch()
    assert (data.error_code, data.aborted_transactions) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
    node.leader.read.assert_not_called()
