"""What the tools decide about clusters that no single node is: several nodes, lagging replicas, moves, hanging writers.

The cluster is a table of answers.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import pytest

from ottla.client import ConfigResource, ErrorCode, KafkaError, ResourceType, TopicPartition
from ottla.client.admin.replica import ActiveProducer, Reassignment, Replica
from ottla.client.admin.result import LogDirDescription, QuorumDescription, QuorumReplica, ReplicaLogDir, Results
from ottla.client.admin.transaction import TransactionDescription, TransactionListing
from ottla.client.connection.metadata import ClusterNode
from ottla.kernel.error import OttlaError
from ottla.kernel.ids import Uuid, uuid_text
from ottla.operations import hanging, reassignment, throttle
from ottla.operations.elections import elect
from ottla.operations.health import DEGRADED, FAILING, DirectoryState, PartitionState, examine, judge
from ottla.operations.partition_view import every_partition, replicas_of
from ottla.operations.quorum_view import members
from ottla.operations.rates import ClusterSample, group_rows, topic_rows

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
NODES = [ClusterNode(number, f"b{number}", 9092, None) for number in (1, 2, 3)]


def good(values: dict[Any, Any], errors: dict[Any, KafkaError] | None = None) -> Results[Any, Any]:
    return Results(values, errors or {})


def part(number: int, leader: int | None, replicas: str, isr: str) -> Any:
    def nodes(ids: str) -> tuple[ClusterNode, ...]:
        return tuple(NODES[int(each) - 1] for each in ids)

    led_by = None if leader is None else NODES[leader - 1]
    return SimpleNamespace(partition=number, leader=led_by, replicas=nodes(replicas), isr=nodes(isr))


def directory(path: str, *replicas: tuple[TopicPartition, bool], error: KafkaError | None = None) -> LogDirDescription:
    held = tuple(ReplicaLogDir(tp, 10, 7 if future else 0, future) for tp, future in replicas)
    return LogDirDescription(path, error, held, 1000, 900)


def cluster(**answers: Any) -> Mock:
    """Topics `b` and `a` on nodes 1 to 3: a-1 has no leader, b-0 lags."""
    topics = {
        "b": SimpleNamespace(partitions=(part(0, 2, "23", "2"),)),
        "a": SimpleNamespace(partitions=(part(0, 1, "12", "12"), part(1, None, "13", "3"))),
    }
    ask = Mock(**answers)
    ask.list_topics.side_effect = lambda internal=False: [SimpleNamespace(name=name) for name in topics]
    ask.describe_topics.side_effect = lambda names: good({name: topics[name] for name in names})
    ask.describe_topic.side_effect = topics.__getitem__
    ask.describe_cluster.return_value = SimpleNamespace(nodes=NODES)
    return ask


# ---- partitions and health


def test_every_partition_is_shown_in_order_with_its_trouble() -> None:
    found = [(each.topic, each.partition, each.leader, each.trouble) for each in every_partition(cluster())]
    assert found == [("a", 0, 1, None), ("a", 1, None, "no leader"), ("b", 0, 2, "behind")]


def test_partitions_are_chosen_by_their_numbers() -> None:
    assert replicas_of(cluster(), "a") == {A0: [1, 2], A1: [1, 3]}
    assert replicas_of(cluster(), "a", [1]) == {A1: [1, 3]}
    with pytest.raises(OttlaError, match=r"a has no partition 2 \(expected 0 to 1\)"):
        replicas_of(cluster(), "a", [1, 2])


@pytest.mark.parametrize(
    ("free", "total", "level"),
    [(10, 100, None), (9, 100, DEGRADED), (2, 100, DEGRADED), (1, 100, FAILING), (-1, 100, None), (0, -1, None)],
)
def test_a_disk_is_judged_by_what_is_free(free: int, total: int, level: int | None) -> None:
    reasons = judge(
        [], [DirectoryState(1, "/d", None, free, total)], quorum_leader=1, voters_silent={}, nodes_silent={}
    )
    assert [each.level for each in reasons] == ([] if level is None else [level])


@pytest.mark.parametrize(
    ("in_sync", "least", "level"), [(3, 2, None), (2, 2, DEGRADED), (1, 2, FAILING), (2, None, DEGRADED)]
)
def test_a_partition_is_judged_by_its_replicas_in_sync(in_sync: int, least: int | None, level: int | None) -> None:
    reasons = judge(
        [PartitionState("t-0", 1, 3, in_sync, least)], [], quorum_leader=None, voters_silent={}, nodes_silent={}
    )
    assert [each.level for each in reasons] == ([] if level is None else [level])


def test_a_silent_node_is_named_behind_what_is_worse() -> None:
    reasons = judge([], [], quorum_leader=-1, voters_silent={}, nodes_silent={3: "REQUEST_TIMED_OUT"})
    assert [each.level for each in reasons] == [FAILING, DEGRADED]
    assert reasons[1].what == "node 3 does not report its log directories: REQUEST_TIMED_OUT"


def quorum(leader: int, fetched: dict[int, int]) -> Any:
    voters = [SimpleNamespace(id=voter, last_fetch_timestamp=then) for voter, then in fetched.items()]
    return SimpleNamespace(leader_id=leader, voters=voters)


@pytest.mark.parametrize(
    ("fetched", "found"),
    [
        ({1: 50_000, 2: 40_000, 3: 50_500}, []),
        ({1: 50_000, 3: -1, 2: 39_999}, ["voter 2 of the quorum has not fetched for 10 s", "voter 3"]),
        # A leader that does not say when it fetched from itself says nothing of the others.
        ({1: -1, 2: -1}, []),
        ({2: 5_000}, []),
    ],
)
def test_a_voter_that_does_not_fetch_is_named(fetched: dict[int, int], found: list[str]) -> None:
    ask = cluster(describe_log_dirs=lambda: good({}), describe_quorum=lambda: quorum(1, fetched))
    ask.describe_configs.return_value = good({})
    said = [each for each in examine(ask)[0] if "voter" in each.what]
    assert [each.level for each in said] == [DEGRADED] * len(found)
    assert all(each.what.startswith(start) for each, start in zip(said, found, strict=True))


def test_a_cluster_is_examined_with_the_least_isr_of_what_lags() -> None:
    broken = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    dirs = good(
        {2: (directory("/d2"),), 1: (directory("/d1", error=broken),)}, {3: KafkaError(ErrorCode.REQUEST_TIMED_OUT)}
    )
    ask = cluster(describe_log_dirs=lambda: dirs, describe_quorum=lambda: quorum(1, {1: 50_000, 2: 49_000}))
    asked: list[str] = []

    def configs(resources: list[ConfigResource]) -> Results[Any, Any]:
        asked.extend(each.name for each in resources)
        return good({each: {"min.insync.replicas": SimpleNamespace(value="2")} for each in resources})

    ask.describe_configs.side_effect = configs
    reasons, counts = examine(ask)
    assert counts == {"nodes": 3, "partitions": 3, "directories": 2}
    assert asked == ["a", "b"]
    assert [(each.level, each.what.partition(":")[0]) for each in reasons] == [
        (FAILING, "1 partition without a leader"),
        (FAILING, "1 partition with fewer replicas in sync than min.insync.replicas"),
        (FAILING, "the log directory /d1 of node 1 is offline (KAFKA_STORAGE_ERROR)"),
        (DEGRADED, "node 3 does not report its log directories"),
    ]
    # A quorum that cannot be asked says nothing; another error is one.
    for code in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
        ask.describe_quorum = Mock(side_effect=KafkaError(code))
        if code is ErrorCode.UNSUPPORTED_VERSION:
            assert len(examine(ask)[0]) == 4
        else:
            with pytest.raises(KafkaError):
                examine(ask)


# ---- rates


def test_a_rate_needs_two_samples_that_grow() -> None:
    before = ClusterSample(10.0, {("t", 0): 5, ("t", 1): 9, ("v", 0): 1}, {}, {"t": 100, "v": 9})
    now = ClusterSample(12.0, {("t", 1): 7, ("t", 0): 5, ("v", 0): 1}, {("t", 0): 5}, {"t": 90})
    cut, still = topic_rows(before, now)
    assert (cut["partitions"], cut["records"], cut["bytes"]) == (2, 7, 90)
    # Partition 1 was cut, partition 0 stood still: no rate of bytes, none of records, no hot partition.
    assert (cut["records_per_s"], cut["bytes_per_s"], cut["hottest_partition"]) == (0, None, None)
    assert (still["records_per_s"], still["bytes"], still["bytes_per_s"]) == (0, None, None)
    same_time = ClusterSample(10.0, {("t", 0): 9}, {}, {"t": 100})
    (row,) = topic_rows(before, same_time)
    assert (row["records_per_s"], row["bytes_per_s"]) == (None, None)
    (row,) = topic_rows(before, ClusterSample(11.0, {("t", 1): 29}, {}, {"t": 100}))
    assert (row["records_per_s"], row["bytes_per_s"], row["hottest_partition"]) == (20, 0, None)


def test_groups_are_shown_with_the_longest_lag_first() -> None:
    before = ClusterSample(0.0, {}, {}, {}, {"a": ("Stable", 1, 5), "b": ("Stable", 1, None)})
    now = ClusterSample(
        2.0, {}, {}, {}, {"c": ("Empty", 0, 9), "a": ("Stable", 2, 9), "b": ("Dead", 0, 4), "d": ("Empty", 0, None)}
    )
    assert [(row["group"], row["lag"], row["lag_per_s"]) for row in group_rows(before, now)] == [
        ("a", 9, 2.0),
        ("c", 9, None),
        ("b", 4, None),
        ("d", None, None),
    ]
    assert {row["lag_per_s"] for row in group_rows(now, now)} == {None}


# ---- elections, quorum


def test_an_election_that_was_not_needed_is_no_failure() -> None:
    errors = {A1: KafkaError(ErrorCode.ELECTION_NOT_NEEDED), B0: KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)}
    ask = Mock()
    ask.elect_leaders.return_value = good({A0: None}, errors)
    outcome = elect(ask, [A0, A1, B0], unclean=True)
    assert ask.elect_leaders.call_args == call([A0, A1, B0], unclean=True)
    assert (outcome.elected, outcome.unchanged, outcome.failed) == ([A0], [A1], {B0: errors[B0]})
    elect(ask)
    assert ask.elect_leaders.call_args == call(None, unclean=False)


def test_the_lag_in_the_quorum_is_behind_its_leader() -> None:
    def replica(number: int, end: int) -> QuorumReplica:
        return QuorumReplica(number, Uuid(bytes([number]) * 16), end, 5, 6)

    voters = (replica(1, 90), replica(2, 100), replica(3, 120))
    quorum = QuorumDescription(2, 7, 90, voters, (replica(9, 40),), {2: ("C://h:1",)})
    assert [(each.node, each.role, each.end_offset, each.lag, each.endpoints) for each in members(quorum)] == [
        (1, "voter", 90, 10, []),
        (2, "leader", 100, 0, ["C://h:1"]),
        (3, "voter", 120, 0, []),
        (9, "observer", 40, 60, []),
    ]
    assert members(quorum)[3].directory_id == uuid_text(Uuid(b"\t" * 16))
    leaderless = QuorumDescription(-1, 7, 90, voters, ())
    assert [(each.role, each.lag) for each in members(leaderless)] == [("voter", 0)] * 3


# ---- hanging transactions


def producer(number: int, *, start: int | None = 3, last_ms: int = 0) -> ActiveProducer:
    return ActiveProducer(number, 0, 0, last_ms, 0, start)


def transaction(number: int, *partitions: TopicPartition) -> TransactionDescription:
    return TransactionDescription(f"x{number}", "Ongoing", number, 0, 1, 1, partitions, NODES[0])


@pytest.fixture
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hanging, "time", SimpleNamespace(time_ns=lambda: 1000 * 1_000_000))


@pytest.mark.usefixtures("_now")
def test_a_transaction_hangs_that_is_old_and_that_its_coordinator_does_not_know() -> None:
    producers = {
        A0: (producer(1), producer(2), producer(3, start=None), producer(4, last_ms=900), producer(5, last_ms=899)),
        A1: (producer(6),),
        B0: (),
    }
    ask = cluster()
    ask.describe_producers.side_effect = lambda asked, broker: good({tp: producers[tp] for tp in asked})
    known = {1: transaction(1, A0), 2: transaction(2, A1), 6: transaction(6, A1)}
    ask.list_transactions.return_value = [
        TransactionListing(f"x{number}", number, "Ongoing", NODES[0]) for number in (1, 2, 6, 5)
    ]
    gone = KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    ask.describe_transactions.side_effect = lambda names: good(
        {f"x{number}": each for number, each in known.items()}, {"x5": gone} if list(names) else {}
    )
    found = hanging.find_hanging(ask, longer_than_ms=100)
    # The second writes where its coordinator knows of nothing; the fifth's transactional id is gone.
    assert [(tp, each.producer_id) for tp, each in found] == [(A0, 2), (A0, 5)]
    assert ask.list_transactions.call_args == call(producer_ids={1, 2, 5, 6})
    ask.describe_transactions.side_effect = lambda names: good({}, {"x1": KafkaError(ErrorCode.NOT_COORDINATOR)})
    with pytest.raises(hanging.SearchFailed, match="cannot describe 4 transactions: "):
        hanging.find_hanging(ask, longer_than_ms=100)
    ask.list_transactions.side_effect = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no")
    with pytest.raises(hanging.SearchFailed, match="cannot list transactions for 4 producers: no"):
        hanging.find_hanging(ask, longer_than_ms=100)
    ask.describe_producers.side_effect = lambda asked, broker: good(
        {}, {A0: KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)}
    )
    with pytest.raises(
        hanging.SearchFailed, match="cannot describe producers for 3 partitions: NOT_LEADER_OR_FOLLOWER"
    ):
        hanging.find_hanging(ask, longer_than_ms=100)


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({}, [B0, A0, A1]),
        ({"topic": "a"}, [A0, A1]),
        ({"topic": "a", "partition": 1}, [A1]),
        ({"broker": 3}, [B0, A1]),
        ({"topic": "a", "broker": 2}, [A0]),
    ],
)
def test_a_search_for_hanging_transactions_looks_where_it_is_told(
    given: dict[str, Any], asked: list[TopicPartition]
) -> None:
    ask = cluster()
    ask.describe_producers.return_value = good({})
    assert hanging.find_hanging(ask, longer_than_ms=0, **given) == []
    assert ask.describe_producers.call_args == call(asked, broker=given.get("broker"))
    assert not ask.list_transactions.called


# ---- moves


def test_moves_under_way_are_those_of_partitions_and_of_directories() -> None:
    ask = cluster()
    ask.list_partition_reassignments.return_value = {
        B0: Reassignment((1, 2, 3), (3,), (1,)),
        A0: Reassignment((1, 2), (2,), ()),
    }
    ask.describe_log_dirs.return_value = good(
        {2: (directory("/x", (A1, True), (A0, False)),), 1: (directory("/y", (B0, True)),)}
    )
    found = [
        (each.topic, each.partition, each.replicas, each.adding, each.removing, each.directory, each.lag)
        for each in reassignment.under_way(ask)
    ]
    assert found == [
        ("a", 0, [1, 2], [2], [], None, None),
        ("b", 0, [1, 2, 3], [3], [1], None, None),
        ("b", 0, [1], [], [], "/y", 7),
        ("a", 1, [2], [], [], "/x", 7),
    ]


def test_a_move_goes_to_nodes_that_live_and_is_throttled_before_it_begins() -> None:
    ask = cluster()
    ask.alter_partition_reassignments.return_value = good({})
    with pytest.raises(OttlaError, match="there is no node 4 now; the nodes are 1, 2, 3"):
        reassignment.begin_move(ask, "a", [1, 4])
    assert not ask.alter_partition_reassignments.called
    assert reassignment.begin_move(ask, "a", [2, 3], [1], bytes_per_s=500) == [A1]
    assert [each for each in ask.mock_calls if each[0] in ("alter_config", "alter_partition_reassignments")] == [
        call.alter_config(
            ConfigResource(ResourceType.TOPIC, "a"),
            dict(zip(throttle.TOPIC_REPLICAS, ("1:1,1:3", "1:2"), strict=True)),
        ),
        *(
            call.alter_config(ConfigResource(ResourceType.BROKER, node), dict.fromkeys(throttle.BROKER_RATES, "500"))
            for node in "123"
        ),
        call.alter_partition_reassignments({A1: [2, 3]}),
    ]
    ask.reset_mock()
    reassignment.begin_move(ask, "a", [2])
    assert not ask.alter_config.called


def test_a_move_that_is_refused_leaves_no_throttle() -> None:
    for moving, settings in (({}, dict.fromkeys(throttle.TOPIC_REPLICAS)), ({B0: None}, None)):
        ask = cluster()
        refused = KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no")
        ask.alter_partition_reassignments.return_value = good({}, {A1: refused})
        ask.list_partition_reassignments.return_value = moving
        with pytest.raises(KafkaError, match="INVALID_REPLICA_ASSIGNMENT"):
            reassignment.begin_move(ask, "a", [2, 3], [1], bytes_per_s=500)
        last = ask.alter_config.call_args
        assert (last == call(ConfigResource(ResourceType.TOPIC, "a"), settings)) is (not moving)


def test_only_what_moves_is_cancelled() -> None:
    ask = cluster()
    ask.alter_partition_reassignments.return_value = good({})
    ask.list_partition_reassignments.return_value = {A1: None, A0: None}
    assert reassignment.cancel(ask, "a") == [A0, A1]
    assert ask.alter_partition_reassignments.call_args == call({A0: None, A1: None})
    ask.reset_mock()
    ask.list_partition_reassignments.return_value = {}
    assert reassignment.cancel(ask, "a", [1]) == []
    assert ask.list_partition_reassignments.call_args == call([A1])
    assert not ask.alter_partition_reassignments.called


def test_a_replica_moves_to_a_directory_of_a_node_that_holds_it() -> None:
    ask = cluster()
    ask.describe_log_dirs.return_value = good({each: (directory("/x"), directory("/y")) for each in (1, 2, 3)})
    ask.alter_replica_log_dirs.return_value = good({})
    for arguments, words in (
        (("a", "/x", 4), "there is no node 4 now; the nodes are 1, 2, 3"),
        (("a", "/z", 1), r"node 1 has no log directory /z \(expected /x, /y\)"),
        (("b", "/x", 1), "node 1 holds no replica of b"),
    ):
        with pytest.raises(OttlaError, match=words):
            reassignment.begin_directory_move(ask, *arguments)
    assert reassignment.begin_directory_move(ask, "a", "/y", 3) == [Replica("a", 1, 3)]
    assert ask.alter_replica_log_dirs.call_args == call({Replica("a", 1, 3): "/y"})


def test_a_replica_has_arrived_when_it_is_no_future_one_any_more() -> None:
    ask = cluster()
    ask.describe_log_dirs.return_value = good(
        {3: (directory("/x", (A1, False)), directory("/y", (A1, True), (B0, False)))}
    )
    replicas = [Replica("a", 1, 3), Replica("b", 0, 3)]
    assert reassignment.not_in(ask, replicas, "/y") == 1
    assert reassignment.not_in(ask, replicas, "/x") == 1
    assert reassignment.not_in(ask, replicas[1:], "/y") == 0


def test_a_replica_is_where_it_is_and_where_it_goes() -> None:
    ask = cluster()
    answer = {1: (directory("/x", (A0, False)), directory("/y", (A0, True), (A1, False)))}
    ask.describe_log_dirs.return_value = good(answer)
    assert reassignment.directories(ask, {A0: [1, 4], A1: [2]}) == {(A0, 1): ("/x", "/y"), (A1, 1): ("/y", None)}
    assert ask.describe_log_dirs.call_args == call([1, 2], {A0: [1, 4], A1: [2]})
    ask.describe_log_dirs.return_value = good({1: answer[1][::-1]})
    assert reassignment.directories(ask, {A0: [1]})[A0, 1] == ("/x", "/y")


def test_a_directory_move_waits_for_a_replica_that_is_not_there_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    steady = SimpleNamespace(monotonic=lambda: clock[0], sleep=lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    monkeypatch.setattr(reassignment, "time", steady)
    one, two = Replica("a", 0, 1), Replica("a", 1, 1)
    away = KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE)
    ask, begun = Mock(), Mock()
    ask.alter_replica_log_dirs.side_effect = [good({two: None}, {one: away}), good({one: None})]
    assert reassignment.begin_directory_moves(ask, {one: "/x", two: "/y"}, 1000, begun) == ([], {})
    assert begun.mock_calls == [call(two, "/y"), call(one, "/x")]
    ask.alter_replica_log_dirs.side_effect = lambda left: good({}, dict.fromkeys(left, away))
    assert reassignment.begin_directory_moves(ask, {one: "/x"}, 250, begun) == ([one], {})
    assert clock[0] < 0.7
    broken = KafkaError(ErrorCode.LOG_DIR_NOT_FOUND)
    ask.alter_replica_log_dirs.side_effect = lambda left: good({two: None}, {one: broken})
    assert reassignment.begin_directory_moves(ask, {one: "/x", two: "/y"}, 0, begun) == ([one, two], {one: broken})


# ---- throttles


def test_throttles_stay_while_something_moves_and_go_with_all_rates() -> None:
    ask = cluster()
    ask.list_partition_reassignments.return_value = {B0: None, A1: None}
    with pytest.raises(OttlaError, match=r"a-1 is still moving \(and 1 more\): wait"):
        throttle.unthrottle_all(ask)
    ask.list_partition_reassignments.return_value = {B0: None}
    with pytest.raises(OttlaError, match="b-0 is still moving: wait"):
        throttle.unthrottle_all(ask)
    assert not ask.alter_config.called
    ask.list_partition_reassignments.return_value = {}

    def configs(resources: list[ConfigResource]) -> Results[Any, Any]:
        values = {"a": ("", "*"), "b": ("", "")}
        return good(
            {
                each: {
                    name: SimpleNamespace(value=value)
                    for name, value in zip(throttle.TOPIC_REPLICAS, values[each.name], strict=True)
                }
                for each in resources
            }
        )

    ask.describe_configs.side_effect = configs
    assert throttle.unthrottle_all(ask) == ["a"]
    assert ask.alter_config.mock_calls == [
        *(call(ConfigResource(ResourceType.BROKER, node), dict.fromkeys(throttle.BROKER_RATES)) for node in "123"),
        call(ConfigResource(ResourceType.TOPIC, "a"), dict.fromkeys(throttle.TOPIC_REPLICAS)),
    ]


def test_moves_between_directories_have_a_rate_of_their_own() -> None:
    rate = "replica.alter.log.dirs.io.max.bytes.per.second"
    ask = cluster()
    throttle.throttle_directories(ask, [2, 1, 2], 700)
    throttle.unthrottle_brokers(ask, [1], directories=True)
    assert ask.alter_config.mock_calls == [
        *(call(ConfigResource(ResourceType.BROKER, node), {rate: "700"}) for node in "12"),
        call(ConfigResource(ResourceType.BROKER, "1"), dict.fromkeys((*throttle.BROKER_RATES, rate))),
    ]
