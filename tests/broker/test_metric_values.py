"""What a node counts of a cluster where something is wrong: replicas that lag, brokers that are fenced, elections."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.broker.observe import metrics
from ottla.broker.observe.cluster_changes import ClusterChanges
from ottla.broker.observe.requests import QUANTILES, Durations
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.metadata.image import PartitionImage, TopicImage
from ottla.raft.role import Candidate, Follower, Leader, Prospective, Unattached, Voter

ID = Uuid(b"t" * 16)
_MANAGER = "kafka_server_replicamanager_"
_CONTROLLER = "kafka_controller_kafkacontroller_"
VOTERS = [SimpleNamespace(voter=Voter(number)) for number in (1, 2, 3)]


def values(*pieces: list[str]) -> dict[str, float]:
    """Samples by their names."""
    lines = [line.rpartition(" ") for piece in pieces for line in piece if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def part(leader: int, replicas: str, isr: str, **more: Any) -> PartitionImage:
    return PartitionImage(leader, 1, tuple(map(int, replicas)), tuple(map(int, isr)), **more)


# ---- the cluster


@pytest.mark.parametrize(("own", "leader", "active"), [(1, 1, True), (1, 2, False), (1, None, False)])
@pytest.mark.parametrize("is_controller", [True, False])
def test_the_active_controller_counts_the_cluster_and_no_other_node(
    own: int, leader: int | None, active: bool, is_controller: bool
) -> None:
    parts = (part(1, "123", "123"), part(2, "123", "12"), part(-1, "12", ""), part(3, "31", "3"))
    brokers = {number: SimpleNamespace(fenced=number == 3) for number in (1, 2, 3)}
    topics = {"t": TopicImage("t", ID, parts), "u": TopicImage("u", ID, parts[:1])}
    node: Any = SimpleNamespace(
        node_id=own,
        quorum=SimpleNamespace(leader=None if leader is None else SimpleNamespace(node_id=leader)),
        settings=SimpleNamespace(is_controller=is_controller),
        image=SimpleNamespace(topics=topics, brokers=brokers),
    )
    found = values(*metrics._cluster(node))
    shown = active and is_controller
    expected = {"activecontrollercount": float(shown)}
    if shown:
        expected |= {
            "globaltopiccount": 2,
            "globalpartitioncount": 5,
            "offlinepartitionscount": 1,
            "preferredreplicaimbalancecount": 2,
            "activebrokercount": 2,
            "fencedbrokercount": 1,
        }
    assert found == {_CONTROLLER + name: value for name, value in expected.items()}


@pytest.mark.parametrize(
    ("replicas", "isr", "least", "more", "counted"),
    [
        ("123", "123", 2, {}, ""),
        ("123", "12", 2, {}, "underreplicatedpartitions atminisrpartitioncount"),
        ("123", "1", 2, {}, "underreplicatedpartitions underminisrpartitioncount"),
        ("12", "12", 2, {}, "atminisrpartitioncount"),
        # More are wanted in sync than there are replicas.
        ("12", "12", 3, {}, "atminisrpartitioncount"),
        ("123", "123", 1, {"adding_replicas": (3,)}, "reassigningpartitions"),
        # A replica that is being added lags behind, and the others are all there.
        ("123", "12", 1, {"adding_replicas": (3,)}, "reassigningpartitions"),
        (
            "123",
            "1",
            2,
            {"adding_replicas": (2,)},
            "underreplicatedpartitions reassigningpartitions underminisrpartitioncount",
        ),
        ("123", "123", 1, {"removing_replicas": (3,)}, "reassigningpartitions"),
    ],
)
def test_a_led_partition_counts_by_its_replicas_in_sync(
    replicas: str, isr: str, least: int, more: dict[str, Any], counted: str
) -> None:
    tp = TopicPartition("t", 0)
    machine = Mock(settings=Mock(min_isr=least))
    topics = {"t": TopicImage("t", ID, (part(1, replicas, isr, **more),))}
    node: Any = SimpleNamespace(partitions={tp: Mock(machine=machine)}, image=SimpleNamespace(topics=topics))
    names = [_MANAGER + name for name in ("leadercount", *counted.split())]
    assert sorted(metrics._state(node, tp)) == sorted(names)
    # Without followers nothing is compared with min.insync.replicas.
    node.partitions[tp].machine = None
    assert not [name for name in metrics._state(node, tp) if "minisr" in name]
    # Those that it follows, and those of which the metadata knows nothing any more.
    for other in (TopicPartition("t", 1), TopicPartition("u", 0)):
        assert list(metrics._state(node, other)) == []
        node.partitions[other] = node.partitions[tp]
        assert list(metrics._state(node, other)) == []


# ---- the quorum


def role(kind: type, *, voted: Voter | None = None) -> Any:
    made: Any = object.__new__(kind)
    made.voted = voted
    if kind is Leader:
        made.change = None
    return made


@pytest.mark.parametrize(
    ("kind", "voted", "own", "state", "vote"),
    [
        (Leader, None, 1, "leader", 1),
        (Candidate, 1, 1, "candidate", 1),
        (Prospective, None, 1, "prospective", -1),
        (Prospective, 2, 1, "prospective-voted", 2),
        (Follower, None, 1, "follower", -1),
        (Follower, 3, 1, "follower", 3),
        (Follower, None, 9, "observer", -1),
        (Unattached, None, 1, "unattached", -1),
        (Unattached, 2, 1, "unattached-voted", 2),
    ],
)
def test_a_node_shows_what_it_is_in_the_quorum(kind: type, voted: int | None, own: int, state: str, vote: int) -> None:
    machine = Mock(
        role=role(kind, voted=None if voted is None else Voter(voted)),
        leader_id=2,
        epoch=5,
        high_watermark=40,
        describe=lambda now_ms: (["voter"], ["observer", "observer"]),
    )
    log = Mock(end_offset=41, epochs=Mock(latest=-1))
    node: Any = Mock(node_id=own, quorum=Mock(raft=Mock(quorum=machine), log=log, voters=VOTERS), image=Mock(offset=39))
    found = values(metrics._quorum(node))
    raft = "kafka_server_raftmetrics_"
    assert found.pop(f'{raft}current_state{{current_state="{state}"}}') == 1
    assert found.pop("kafka_server_brokermetadatametrics_last_applied_record_offset") == 39
    of_leader = {"number_of_observers": 2, "uncommitted_voter_change": 0} if kind is Leader else {}
    assert {name.removeprefix(raft): value for name, value in found.items()} == {
        "current_leader": 2,
        "current_epoch": 5,
        "current_vote": vote,
        "high_watermark": 40,
        "log_end_offset": 41,
        "log_end_epoch": 0,
        "number_of_voters": 3,
        **of_leader,
    }


# ---- elections


def changed(before: PartitionImage, after: PartitionImage, *, topic_id: Uuid = ID) -> tuple[int, int, int]:
    changes = ClusterChanges()
    old, new = (
        Mock(topics={"t": TopicImage("t", each, (partition,))}) for each, partition in ((ID, before), (topic_id, after))
    )
    new.touched_topics = lambda _: ["t", "made", "gone"]
    new.topics["made"] = old.topics["gone"] = TopicImage("x", ID, (after._replace(leader_epoch=9),))
    changes.follow(old, new)
    return changes.elections, changes.unclean_elections, changes.elections_from_elr


_LED = part(1, "123", "12")


@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        ({}, {"leader": 2, "leader_epoch": 2}, (1, 0, 0)),
        ({}, {"leader": 1, "leader_epoch": 2}, (1, 0, 0)),
        ({}, {"leader": -1, "leader_epoch": 2}, (0, 0, 0)),
        ({}, {"isr": (1,), "partition_epoch": 1}, (0, 0, 0)),
        ({}, {"leader": 3, "leader_epoch": 2, "leader_recovery_state": 1}, (1, 1, 0)),
        # It recovers still, and one that was in sync goes on.
        ({"leader_recovery_state": 1}, {"leader": 2, "leader_epoch": 2, "leader_recovery_state": 1}, (1, 0, 0)),
        ({"leader_recovery_state": 1}, {"leader": 3, "leader_epoch": 2, "leader_recovery_state": 1}, (1, 1, 0)),
        ({"eligible_leader_replicas": (3,)}, {"leader": 3, "leader_epoch": 2}, (1, 0, 1)),
        ({"eligible_leader_replicas": (3,)}, {"leader": 2, "leader_epoch": 2}, (1, 0, 0)),
    ],
)
def test_elections_are_counted_by_their_kind(
    before: dict[str, Any], after: dict[str, Any], counts: tuple[int, int, int]
) -> None:
    was = _LED._replace(**before)
    now = was._replace(**after)
    assert changed(was, now) == counts
    assert changed(was, now, topic_id=Uuid(b"n" * 16)) == (0, 0, 0), "a new topic of this name"


def test_a_leader_of_the_quorum_is_counted_once_an_epoch() -> None:
    changes = ClusterChanges()
    told: list[Any] = []
    quorum = Mock(leader=None, leader_epoch=3, subscribe_leader=told.append)
    changes.watch(quorum)
    assert changes.active_controllers == 0
    quorum.leader = object()
    for epoch, count in ((3, 1), (3, 1), (4, 2)):
        quorum.leader_epoch = epoch
        told[0]()
        assert changes.active_controllers == count


# ---- durations


def test_quantiles_are_the_bounds_below_which_so_many_requests_took() -> None:
    durations = Durations()
    assert list(durations.quantiles(0)) == []
    for number in range(1000):
        durations.add(1.0 if number < 950 else 100.0)
    found = dict(durations.quantiles(1))
    assert list(found) == list(QUANTILES)
    assert [1 <= found[each] < 1.2 for each in QUANTILES] == [True, True, True, False, False]
    assert all(100 <= found[each] < 120 for each in QUANTILES[3:])
    assert (durations.count, durations.sum_ms) == (1000, 950 + 50 * 100)


def test_a_request_counts_for_one_to_two_minutes() -> None:
    durations = Durations()
    list(durations.quantiles(0))
    durations.add(1.0)
    for now_ms, counted in ((59_999, True), (60_000, True), (119_999, True), (120_000, False)):
        assert bool(list(durations.quantiles(now_ms))) == counted, now_ms
    durations.add(1e9)
    ((_, longest), *_) = durations.quantiles(130_000)
    assert 30_000 < longest < 60_000, "the last bucket has no upper bound"
