"""Which replica a consumer is sent to."""

from __future__ import annotations

import pytest

from ottla.replica.leader import Fetched, LeaderReplica, LeaderSettings, PartitionState
from ottla.replica.selector import LEADER, nearest

_RACKS: dict[int, str | None] = {1: "a", 2: "b", 3: "b", 4: "c", 5: None}


def _leader(isr: tuple[int, ...] = (1, 2, 3, 4, 5)) -> LeaderReplica:
    leader = LeaderReplica(
        LeaderSettings(1),
        PartitionState(0, 0, (1, 2, 3, 4, 5), isr),
        end_offset=10,
        high_watermark=10,
        brokers=dict.fromkeys((1, 2, 3, 4, 5), 100),
        now_ms=0,
    )
    for replica_id, offset, start in ((2, 8, 0), (3, 9, 5), (4, 10, 0), (5, 10, 0)):
        leader.step(Fetched(replica_id, 100, offset, start), 0)
    return leader


@pytest.mark.parametrize(
    ("rack", "offset", "chosen"),
    [
        ("a", 6, LEADER),
        ("", 6, LEADER),
        ("z", 6, LEADER),
        ("b", 6, 3),
        ("b", 4, 2),
        ("b", 10, LEADER),
        ("c", 10, 4),
        ("b", 5, 3),
        ("b", 9, 3),
    ],
)
def test_the_replica_in_the_rack_that_has_the_offset_and_the_most(rack: str, offset: int, chosen: int) -> None:
    assert nearest(_leader(), _RACKS, rack, offset) == chosen


def test_replicas_that_lag_or_are_fenced_are_left_out() -> None:
    assert nearest(_leader((1, 2)), _RACKS, "b", 6) == 2
    fenced = _leader()
    fenced.brokers = {1: 100, 2: 100}
    assert nearest(fenced, _RACKS, "b", 6) == 2
    assert nearest(fenced, _RACKS, "c", 6) == LEADER


def test_a_leader_in_the_rack_is_read_itself_though_followers_are_there_too() -> None:
    racks: dict[int, str | None] = dict.fromkeys((1, 2, 3, 4, 5), "a")
    assert nearest(_leader(), racks, "a", 6) == LEADER
    # A consumer without a rack goes to the leader, and brokers without one are near to nobody.
    assert nearest(_leader(), dict.fromkeys((2, 3, 4, 5), ""), "", 6) == LEADER
