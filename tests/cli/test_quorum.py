"""kafka-metadata-quorum: what it makes of a quorum whose leader knows more or less of its voters."""

from typing import Any
from unittest import mock

import pytest

from ottla.cli.kafka.metadata.metadata_quorum import _replication, _status
from ottla.cli.kafka.program.tool import Failed
from ottla.client.admin.result import QuorumDescription, QuorumReplica
from ottla.kernel.ids import NO_UUID, Uuid

_LEADER = QuorumReplica(1, Uuid(b"d" * 16), 500, 9_000, 9_000)


def _quorum(*voters: QuorumReplica, leader_id: int = 1) -> QuorumDescription:
    return QuorumDescription(leader_id, 7, 480, voters, ())


def _said(quorum: QuorumDescription, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    client: Any = mock.Mock()
    client.describe_quorum.return_value = quorum
    client.describe_cluster.return_value.cluster_id = "c"
    _status(client)
    return {
        name: value.strip() for name, _, value in (each.partition(":") for each in capsys.readouterr().out.splitlines())
    }


@pytest.mark.parametrize(
    ("caught_up_ms", "lag_ms"),
    [(8_400, "600"), (9_000, "0"), (0, "9000"), pytest.param(-1, "-1", id="the follower's is not known")],
)
def test_the_slowest_voter_says_how_far_behind_it_is(
    caught_up_ms: int, lag_ms: str, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = QuorumReplica(2, NO_UUID, 460, 8_900, caught_up_ms)
    said = _said(_quorum(_LEADER, slow), capsys)
    assert (said["MaxFollowerLag"], said["MaxFollowerLagTimeMs"]) == ("40", lag_ms)


def test_a_leader_that_does_not_know_its_own_time_gives_no_lag(capsys: pytest.CaptureFixture[str]) -> None:
    leader = QuorumReplica(1, NO_UUID, 500, -1, -1)
    said = _said(_quorum(leader, QuorumReplica(2, NO_UUID, 460, 8_900, 8_400)), capsys)
    assert (said["MaxFollowerLag"], said["MaxFollowerLagTimeMs"]) == ("40", "-1")


def test_a_leader_alone_has_no_lag(capsys: pytest.CaptureFixture[str]) -> None:
    said = _said(_quorum(_LEADER), capsys)
    assert (said["LeaderId"], said["LeaderEpoch"], said["HighWatermark"]) == ("1", "7", "480")
    assert (said["MaxFollowerLag"], said["MaxFollowerLagTimeMs"]) == ("0", "0")


def test_a_quorum_without_a_leader_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Failed, match="no leader"):
        _said(_quorum(_LEADER, leader_id=3), capsys)


def test_replication_shows_the_leader_first_and_times_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    _replication(_quorum(QuorumReplica(2, NO_UUID, 460, -1, 8_400), _LEADER), readable=False)
    _, *rows = (line.split() for line in capsys.readouterr().out.splitlines())
    assert [(row[0], *row[2:]) for row in rows] == [
        ("1", "500", "0", "9000", "9000", "Leader"),
        ("2", "460", "40", "-1", "8400", "Follower"),
    ]
