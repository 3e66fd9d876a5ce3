"""Tables of Kafka's tools about what no empty node has: open transactions, a quorum of three, groups with members."""

from __future__ import annotations

import json
import re
import time
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import pytest

from ottla.cli.kafka.configs import config
from ottla.cli.kafka.groups import consumer_group
from ottla.cli.kafka.metadata import metadata_quorum
from ottla.cli.kafka.topics import log_dirs, transaction
from ottla.client import CommittedOffset, ErrorCode, GroupType, KafkaError, TopicPartition
from ottla.client.admin.quota import QuotaEntity
from ottla.client.admin.replica import ActiveProducer
from ottla.client.admin.result import (
    GroupDescription,
    GroupListing,
    ListedOffset,
    LogDirDescription,
    MemberDescription,
    QuorumDescription,
    QuorumReplica,
    ReplicaLogDir,
    Results,
)
from ottla.client.admin.transaction import TransactionDescription, TransactionListing
from ottla.client.connection.metadata import ClusterNode
from ottla.kernel.ids import NO_UUID, Uuid, uuid_text
from tests.cli.test_kafka_shown import run
from tests.cli.tool import Said

NODE = ClusterNode(1, "b1", 9092, None)
ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
ID = Uuid(b"\1" * 16)


def cells(said: Said) -> list[list[str]]:
    assert said.code == 0, said.err
    return [line.split() for line in said.out.splitlines() if line]


# ---- kafka-transactions


def transactions(client: Mock, *words: str) -> Said:
    return run(transaction, "kafka-transactions", client, *words)


def test_transactions_are_listed_and_described() -> None:
    client = Mock()
    client.list_transactions.return_value = [TransactionListing("x", 7, "Ongoing", NODE)]
    assert cells(transactions(client, "list"))[1] == ["x", "1", "7", "Ongoing"]
    assert client.list_transactions.call_args == call(duration_ms=-1, pattern=None)
    transactions(client, "list", "--duration-filter", "0", "--transactional-id-pattern", "x.*")
    assert client.list_transactions.call_args == call(duration_ms=0, pattern="x.*")
    for start in (None, time.time_ns() // 1_000_000 - 5000):
        found = TransactionDescription("x", "Ongoing", 7, 3, 600, start, (ONE, TWO), NODE)
        client.describe_transactions.return_value = {"x": found}
        _, row = cells(transactions(client, "describe", "--transactional-id", "x"))
        assert row[:6] == ["1", "x", "7", "3", "Ongoing", "600"]
        assert row[8] == "t-0,t-1"
        if start is None:
            assert row[6:8] == ["None", "None"]
        else:
            assert row[6] == str(start)
            assert 5000 <= int(row[7]) < 60_000


def test_producers_of_a_partition_are_shown() -> None:
    client = Mock()
    known = (ActiveProducer(7, 1, 2, 3, None, None), ActiveProducer(8, 4, 5, 6, 9, 10))
    client.describe_producers.return_value = {TWO: known}
    rows = cells(transactions(client, "describe-producers", "--topic", "t", "--partition", "1", "--broker-id", "2"))
    assert rows[1:] == [["7", "1", "-1", "2", "3", "None"], ["8", "4", "9", "5", "6", "10"]]
    assert client.describe_producers.call_args == call([TWO], broker=2)
    client.describe_producers.side_effect = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "not here")
    for more, where in (((), "leader"), (("--broker-id", "2"), "broker 2")):
        said = transactions(client, "describe-producers", "--topic", "t", "--partition", "1", *more)
        assert said.code == 1
        assert said.err.startswith(f"Failed to describe producers for partition t-1 on {where}: not here. Enable")


def test_a_transaction_is_aborted_where_one_begins() -> None:
    client = Mock()
    client.describe_producers.return_value = {ONE: (ActiveProducer(7, 1, 2, 3, 4, 10),)}
    words = ("abort", "--topic", "t", "--partition", "0", "--start-offset")
    assert transactions(client, *words, "10").code == 0
    client.abort_transaction.assert_called_once_with(ONE, 10)
    assert transactions(client, *words, "9").code == 1
    client.abort_transaction.side_effect = KafkaError(ErrorCode.INVALID_TXN_STATE, "too late")
    said = transactions(client, *words, "10")
    assert (said.code, said.err.partition(". ")[0]) == (1, "Failed to abort transaction at offset 10 of t-0: too late")


def test_a_transaction_is_terminated_by_its_name() -> None:
    client = Mock()
    assert transactions(client, "forceTerminateTransaction", "--transactionalId", "x").code == 0
    client.terminate_transaction.assert_called_once_with("x")
    client.terminate_transaction.side_effect = KafkaError(ErrorCode.INVALID_TXN_STATE, "gone")
    said = transactions(client, "forceTerminateTransaction", "--transactionalId", "x")
    assert said.err.startswith("Failed to force terminate transactionalId `x`: gone. Enable")


def test_hanging_transactions_are_shown_with_their_age(monkeypatch: pytest.MonkeyPatch) -> None:
    last_ms = time.time_ns() // 1_000_000 - 20 * 60_000 - 5000
    find = Mock(return_value=[(TWO, ActiveProducer(7, 1, 2, last_ms, None, 10))])
    monkeypatch.setattr(transaction, "find_hanging", find)
    rows = cells(transactions(Mock(), "find-hanging", "--topic", "t", "--partition", "1"))
    assert rows[1] == ["t", "1", "7", "1", "-1", "10", str(last_ms), "20"]
    assert find.call_args.args[1:] == ("t",)
    assert find.call_args.kwargs == {"longer_than_ms": 15 * 60_000, "partition": 1, "broker": None}
    transactions(Mock(), "find-hanging", "--broker-id", "3", "--max-transaction-timeout", "2")
    assert find.call_args.kwargs == {"longer_than_ms": 2 * 60_000, "partition": None, "broker": 3}


# ---- kafka-metadata-quorum


def replica(number: int, end: int, caught_up: int = -1, fetched: int = -1, directory: Uuid = ID) -> QuorumReplica:
    return QuorumReplica(number, directory, end, fetched, caught_up)


def quorum(*voters: QuorumReplica, leader: int = 2, observers: tuple[QuorumReplica, ...] = ()) -> Mock:
    client = Mock()
    client.describe_cluster.return_value = SimpleNamespace(cluster_id="c")
    client.describe_quorum.return_value = QuorumDescription(
        leader, 5, 90, voters, observers, {2: ("C://h:1", "D://h:2")}
    )
    return client


def status(client: Mock) -> dict[str, str]:
    said = run(metadata_quorum, "kafka-metadata-quorum", client, "describe", "--status")
    return {name: value.strip() for name, _, value in (line.partition(":") for line in said.out.splitlines())}


@pytest.mark.parametrize(
    ("leader_ms", "follower_ms", "ends", "lag", "lag_ms"),
    [
        (1000, 400, (100, 70), "30", "600"),
        (1000, -1, (100, 70), "30", "-1"),
        (-1, 400, (100, 70), "30", "-1"),
        (1000, 400, (100, 100), "0", "0"),
        (-1, -1, (100, 100), "0", "0"),
        (0, 0, (100, 70), "30", "0"),
    ],
)
def test_a_quorums_status_shows_the_slowest_voter(
    leader_ms: int, follower_ms: int, ends: tuple[int, int], lag: str, lag_ms: str
) -> None:
    leader, follower = replica(2, ends[0], leader_ms), replica(1, ends[1], follower_ms, directory=NO_UUID)
    found = status(quorum(leader, follower, observers=(replica(9, 5),)))
    assert (found["ClusterId"], found["LeaderId"], found["LeaderEpoch"], found["HighWatermark"]) == (
        "c",
        "2",
        "5",
        "90",
    )
    assert (found["MaxFollowerLag"], found["MaxFollowerLagTimeMs"]) == (lag, lag_ms)
    assert found["CurrentVoters"] == (
        f'[{{"id": 2, "directoryId": "{uuid_text(ID)}", "endpoints": ["C://h:1", "D://h:2"]}}, {{"id": 1}}]'
    )
    assert found["CurrentObservers"] == f'[{{"id": 9, "directoryId": "{uuid_text(ID)}"}}]'


def test_a_quorums_replicas_are_shown_with_their_lag_the_leader_first() -> None:
    now_ms = time.time_ns() // 1_000_000
    client = quorum(replica(1, 70, -1, now_ms - 5000), replica(2, 100, now_ms + 60_000, 3), observers=(replica(9, 5),))
    words = ("describe", "--replication")
    rows = cells(run(metadata_quorum, "kafka-metadata-quorum", client, *words))
    assert [(row[0], row[2], row[3], row[-1]) for row in rows[1:]] == [
        ("2", "100", "0", "Leader"),
        ("1", "70", "30", "Follower"),
        ("9", "5", "95", "Observer"),
    ]
    assert rows[1][1] == uuid_text(ID)
    assert rows[2][4:6] == [str(now_ms - 5000), "-1"]
    rows = cells(run(metadata_quorum, "kafka-metadata-quorum", client, *words, "--human-readable"))
    assert rows[1][-4:-1] == ["0", "ms", "ago"], "no time that is still to come"
    assert 5000 <= int(rows[2][4]) < 60_000
    assert rows[3][4:6] == ["-1", "-1"]


def test_a_quorum_without_a_leader_says_so() -> None:
    said = run(metadata_quorum, "kafka-metadata-quorum", quorum(replica(1, 70), leader=-1), "describe", "--status")
    assert (said.code, "the quorum has no leader" in said.err) == (1, True)


def test_a_voter_is_removed_by_its_id_and_directory() -> None:
    client = Mock()
    words = ("remove-controller", "--controller-directory-id", uuid_text(ID), "--controller-id")
    said = run(metadata_quorum, "kafka-metadata-quorum", client, *words, "3", "--dry-run")
    assert said.out == f"DRY RUN of removing  KRaft controller 3 with directory id {uuid_text(ID)}\n"
    assert not client.remove_raft_voter.called
    said = run(metadata_quorum, "kafka-metadata-quorum", client, *words, "0")
    assert said.out == f"Removed  KRaft controller 0 with directory id {uuid_text(ID)}\n"
    client.remove_raft_voter.assert_called_once_with(0, ID)
    assert run(metadata_quorum, "kafka-metadata-quorum", client, *words, "-1").code == 1


# ---- kafka-consumer-groups


def member(name: str, *partitions: TopicPartition, **more: Any) -> MemberDescription:
    return MemberDescription(name, more.pop("instance", None), f"c-{name}", "/h", partitions, **more)


def group(*members: MemberDescription, state: str = "Stable", committed: Any = None, **more: Any) -> Mock:
    client = Mock()
    client.describe_group.side_effect = lambda name: GroupDescription(
        name, GroupType.CONSUMER, state, "uniform", members, NODE, **more
    )
    client.list_group_offsets.return_value = committed or {}
    parts = [SimpleNamespace(partition=number, leader=NODE if number < 3 else None) for number in range(4)]
    client.describe_topics.side_effect = lambda names: Results(
        {name: SimpleNamespace(partitions=parts) for name in names}, {}
    )
    client.list_offsets.side_effect = lambda wanted: Results({tp: ListedOffset(20, -1, None) for tp in wanted}, {})
    return client


def described(client: Mock, *words: str) -> Said:
    return run(consumer_group, "kafka-consumer-groups", client, "--describe", "--group", "g", *words)


def test_lag_is_shown_by_member_and_then_for_what_no_member_has() -> None:
    three, four = TopicPartition("t", 2), TopicPartition("t", 3)
    committed = {ONE: CommittedOffset(5, "", 2), three: CommittedOffset(20), four: CommittedOffset(1)}
    client = group(member("m1", ONE), member("m2", TopicPartition("u", 0), TWO), committed=committed)
    rows = cells(described(client))
    assert rows[1:] == [
        ["g", "t", "1", "-", "20", "-", "m2", "/h", "c-m2"],
        ["g", "u", "0", "-", "20", "-", "m2", "/h", "c-m2"],
        ["g", "t", "0", "5", "20", "15", "m1", "/h", "c-m1"],
        ["g", "t", "2", "20", "20", "0", "-", "-", "-"],
        # Nobody leads it: its end is not known.
        ["g", "t", "3", "1", "-", "-", "-", "-", "-"],
    ]
    rows = cells(described(client, "--offsets", "--verbose"))
    assert [row[3] for row in rows[1:]] == ["-", "-", "2", "-", "-"]


@pytest.mark.parametrize(
    ("state", "out", "err"),
    [
        ("Dead", "\nError: Consumer group 'g' does not exist.\n", ""),
        ("Empty", "", "\nConsumer group 'g' has no active members.\n"),
        ("Reconciling", "", "\nWarning: Consumer group 'g' is rebalancing.\n"),
        ("PreparingRebalance", "", "\nWarning: Consumer group 'g' is rebalancing.\n"),
        ("Stable", "", ""),
    ],
)
def test_a_group_without_rows_tells_its_state(state: str, out: str, err: str) -> None:
    said = described(group(state=state))
    assert (said.out, said.err) == (out, err)
    said = described(group(state=state), "--state")
    assert ("#MEMBERS" in said.out, said.err) == (state != "Dead", err)


def test_members_are_shown_with_what_some_of_them_have() -> None:
    plain = member("m1", TWO, ONE, epoch=3, target_assignment=(ONE,))
    titles, row = cells(described(group(plain), "--members"))
    assert titles == ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    assert row == ["g", "m1", "/h", "c-m1", "2"]
    titles, row = cells(described(group(plain, assignment_epoch=7), "--members", "--verbose"))
    assert row[5:] == ["3", "t:0,1", "7", "t:0"]
    assert "UPGRADED" not in titles
    static = member("m2", instance="i", upgraded=False)
    titles, first, second = cells(described(group(member("m1", ONE, upgraded=True), static), "--members", "--verbose"))
    assert (titles[2], titles[-1]) == ("GROUP-INSTANCE-ID", "UPGRADED")
    assert (first[-1], second[2], second[-1]) == ("true", "i", "false")
    assert second[5:10] == ["0", "-", "-", "-", "-"]


def test_columns_are_as_wide_as_their_longest_cell_and_apaches_least_widths() -> None:
    client = group(member("m1", ONE, epoch=3), committed={ONE: CommittedOffset(5, "", 2)}, assignment_epoch=7)
    assert described(client, "--members", "--verbose").out == (
        "\nGROUP           CONSUMER-ID     HOST            CLIENT-ID       #PARTITIONS     CURRENT-EPOCH   "
        "CURRENT-ASSIGNMENT   TARGET-EPOCH    TARGET-ASSIGNMENT   "
        "\ng               m1              /h              c-m1            1               3               "
        "t:0                  7               -                   \n"
    )
    assert described(client).out == (
        "\nGROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG             "
        "CONSUMER-ID     HOST            CLIENT-ID"
        "\ng               t               0          5               20              15              "
        "m1              /h              c-m1\n"
    )
    topic, name, host = "t" * 30, "m" * 20, "/fd00:0:0:0:0:0:0:1"
    wide = MemberDescription(name, name, f"c-{name}", host, (TopicPartition(topic, 0),))
    for words in ((), ("--members",), ("--members", "--verbose"), ("--state",)):
        titles, line = described(group(wide), *words).out.removeprefix("\n").splitlines()
        # Each cell but those of numbers begins under its title.
        for cell, title in ((topic, "TOPIC"), (name, "CONSUMER-ID"), (host, "HOST"), (f"c-{name}", "CLIENT-ID")):
            assert title not in titles or line.index(cell) == titles.index(title)
        assert len(re.split(" +", titles.strip())) >= 5


def test_groups_are_listed_by_state_and_type() -> None:
    client = Mock()
    client.list_groups.side_effect = lambda states: [
        GroupListing("a", GroupType.CLASSIC, "Stable", "consumer"),
        GroupListing("b", GroupType.CONSUMER, "Empty", "consumer"),
        GroupListing("simple", GroupType.CLASSIC, "Empty", ""),
        GroupListing("connect", GroupType.CLASSIC, "Stable", "connect"),
        GroupListing("s", GroupType.SHARE, "Stable", "share"),
    ]

    def listed(*words: str) -> list[list[str]]:
        return cells(run(consumer_group, "kafka-consumer-groups", client, "--list", *words))

    assert listed() == [["a"], ["b"], ["simple"]]
    assert listed("--type", "Classic") == [["GROUP", "TYPE"], ["a", "Classic"], ["simple", "Classic"]]
    assert listed("--state")[1] == ["a", "Stable"]
    assert listed("--state", "preparing_rebalance,STABLE", "--type")[2] == ["b", "Consumer", "Empty"]
    assert client.list_groups.call_args == call(states=["PreparingRebalance", "Stable"])


def test_deleted_offsets_are_told_partition_by_partition() -> None:
    client = group()
    gone = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    client.describe_topics.side_effect = lambda names: Results(
        {"t": SimpleNamespace(partitions=[SimpleNamespace(partition=0), SimpleNamespace(partition=1)])}, {"no": gone}
    )
    client.delete_group_offsets.return_value = Results(
        {ONE: None}, {TWO: KafkaError(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)}
    )
    words = ("--delete-offsets", "--group", "g", "--topic", "t", "--topic", "no", "--topic", "t:1")
    said = run(consumer_group, "kafka-consumer-groups", client, *words)
    client.delete_group_offsets.assert_called_once_with("g", [TWO, ONE])
    assert "Encountered some partition-level error, see the follow-up details." in said.out
    rows = [line.split()[:3] for line in said.out.splitlines()[-3:]]
    assert rows == [["no", "-", "Error:"], ["t", "0", "Successful"], ["t", "1", "Error:"]]
    client.delete_group_offsets.side_effect = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    said = run(consumer_group, "kafka-consumer-groups", client, *words)
    assert "Encountered some unknown error: COORDINATOR_NOT_AVAILABLE" in said.out
    client.delete_group_offsets.side_effect = None
    client.delete_group_offsets.return_value = Results({ONE: None, TWO: None}, {})
    said = run(consumer_group, "kafka-consumer-groups", client, *words)
    assert said.out.startswith("Request succeeded for deleting offsets from group g.\n")


# ---- kafka-log-dirs


def test_log_directories_are_shown_of_the_brokers_and_topics_that_are_named() -> None:
    client = Mock()
    client.describe_cluster.return_value = SimpleNamespace(nodes=[ClusterNode(number, "h", 1) for number in (3, 1)])
    held = (ReplicaLogDir(ONE, 10, 2, True), ReplicaLogDir(TopicPartition("u", 0), 20, 0, False))
    broken = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    client.describe_log_dirs.side_effect = lambda brokers: Results(
        {
            each: (LogDirDescription("/a", None, held, 1, 1), LogDirDescription("/b", broken, (), -1, -1))
            for each in brokers
        },
        {},
    )

    def shown(*words: str) -> list[Any]:
        said = run(log_dirs, "kafka-log-dirs", client, "--describe", *words)
        assert said.code == 0
        found = json.loads(said.out.splitlines()[-1])
        assert found["version"] == 1
        return list(found["brokers"])

    whole = shown()
    assert [each["broker"] for each in whole] == [1, 3]
    first, second = whole[0]["logDirs"]
    assert first["partitions"][0] == {"partition": "t-0", "size": 10, "offsetLag": 2, "isFuture": True}
    assert (len(first["partitions"]), first["error"], first["logDir"]) == (2, None, "/a")
    assert second["error"].endswith("KafkaStorageException")
    (only,) = shown("--broker-list", "3", "--topic-list", "u,v")
    assert (only["broker"], [each["partition"] for each in only["logDirs"][0]["partitions"]]) == (3, ["u-0"])
    missing = run(log_dirs, "kafka-log-dirs", client, "--describe", "--broker-list", "3,7")
    assert missing.code == 1
    assert "do not exist from --broker-list: 7. Current existent brokers: 1,3" in missing.err


# ---- kafka-configs


@pytest.mark.parametrize(
    ("parts", "quotas", "shown"),
    [
        (
            {"user": "alice"},
            {"producer_byte_rate": 698874538.100759, "consumer_byte_rate": 1e7},
            "user-principal 'alice' are consumer_byte_rate=1.0E7, producer_byte_rate=6.98874538100759E8",
        ),
        (
            {"client-id": None, "user": "bob"},
            {"request_percentage": 0.0005},
            "user-principal 'bob', the default client-id are request_percentage=5.0E-4",
        ),
        ({"ip": "1.2.3.4"}, {"connection_creation_rate": 200.0}, "ip '1.2.3.4' are connection_creation_rate=200.0"),
        (
            {"user": None},
            {"producer_byte_rate": float("inf")},
            "the default user-principal are producer_byte_rate=Infinity",
        ),
    ],
)
def test_quotas_are_shown_as_java_shows_them(
    parts: dict[str, str | None], quotas: dict[str, float], shown: str
) -> None:
    client = Mock()
    client.describe_client_quotas.return_value = {QuotaEntity(tuple(sorted(parts.items()))): quotas}
    client.describe_scram_credentials.return_value = Results({}, {})
    kinds = {"user": "users", "client-id": "clients", "ip": "ips"}
    words = [word for part in parts for word in ("--entity-type", kinds[part])]
    said = run(config, "kafka-configs", client, "--describe", *words)
    assert (said.code, said.out.splitlines()) == (0, [f"Quota configs for {shown}"])
