"""The authorizer beside Apache's: the same rules, the same requests by the same principals, the same answers."""

import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.interop import server as servers
from tests.interop.apache_tool import ApacheTools
from tests.interop.oracle.side import CLOSED, Connection, Oracle, Side, message
from tests.interop.oracle.test_record import batch
from tests.interop.secured import USERS, SaslServer

pytestmark = pytest.mark.interop

TOPICS = ("orders", "orders-2", "payments", "secret", "absent")
GROUPS = ("app", "app-2", "other")
IDS = ("txn", "txn-2", "job")
STEPS = 260
INVALID_TRANSACTION_TIMEOUT = 50
READ, DELETE = 3, 6
HIDDEN = 29
SEEDS = tuple(map(int, os.environ.get("OTTLA_AUTHORIZER_SEEDS", "1,2").split(",")))

PREFIXED = ("--resource-pattern-type", "prefixed")
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
    "auto.create.topics.enable": "false",
}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SaslServer, SaslServer]]:
    directory = tmp_path_factory.mktemp("authorizer")
    found = [SaslServer(kind, directory / kind.name, AUTHORIZER) for kind in (servers.apache(), servers.ottla())]
    try:
        for server in found:
            server.start()
        oracle = Oracle(*found)
        for side in (oracle.reference, oracle.subject):
            for topic in TOPICS[:-1]:
                side.create(topic, 2)
            for group in GROUPS:
                commit(side, group)
            make_coordinators(side)
            side.producer_id()
        oracle.close()
        yield found[0], found[1]
    finally:
        for server in found:
            server.stop()


def commit(side: Side, group: str) -> None:
    """A group with an offset, by a client that may do everything."""
    parts = [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]
    for _ in range(5000):
        side.ask("FindCoordinator", 4, note=False, key_type=0, coordinator_keys=[group])
        answer = side.ask(
            "OffsetCommit",
            8,
            note=False,
            group_id=group,
            generation_id_or_member_epoch=-1,
            topics=[{"name": "orders", "partitions": parts}, {"name": "secret", "partitions": parts}],
        )
        if answer.topics[0].partitions[0].error_code == 0:
            return
    raise AssertionError("the offset is never committed")


def make_coordinators(side: Side) -> None:
    """Transaction coordinators that have loaded."""
    for transactional_id in IDS:
        for _ in range(5000):
            side.ask("FindCoordinator", 4, note=False, key_type=1, coordinator_keys=[transactional_id])
            answer = side.ask(
                "InitProducerId", 4, note=False, transactional_id=transactional_id, transaction_timeout_ms=2_000_000_000
            )
            if answer.error_code == INVALID_TRANSACTION_TIMEOUT:
                break
        else:
            raise AssertionError("the coordinator never loads")


@pytest.fixture
def pair(both: tuple[SaslServer, SaslServer]) -> Iterator[Oracle]:
    one = Oracle(*both)
    yield one
    one.close()


class Actor:
    """A principal's connection to a side; it signs in again when it was closed."""

    def __init__(self, side: Side, user: str) -> None:
        self.side, self.user = side, user
        self._connection: Connection | None = None

    def ask(self, name: str, version: int, values: dict[str, Any]) -> None:
        if self._connection is None:
            assert isinstance(self.side.server, SaslServer)
            self._connection = Connection(self.side.server.sasl_port)
            self._connection.ask(message("SaslHandshake", mechanism="PLAIN"), 1)
            token = f"\0{self.user}\0{USERS[self.user]}".encode()
            assert self._connection.ask(message("SaslAuthenticate", auth_bytes=token), 2).error_code == 0
        try:
            reply = self._connection.ask(message(name, **values), version)
        except TimeoutError:
            raise AssertionError(f"{self.side.server.name} does not answer {self.user}'s {name} {values}") from None
        if reply == CLOSED:
            self.close()
        self.side.note(f"{self.user} {name} v{version} {values}", _settled(reply), version)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _settled(reply: Any) -> Any:
    """Without what differs from run to run, whoever asks."""
    for field in ("throttle_time_ms", "cluster_id", "controller_id"):
        if hasattr(reply, field):
            setattr(reply, field, 0)
    if hasattr(reply, "brokers"):
        reply.brokers = []
    if hasattr(reply, "topics"):
        # Topics by which a script waited.
        reply.topics = [each for each in reply.topics if not _is_settled(each)]
    for each in getattr(reply, "resources", ()):
        each.acls.sort(key=repr)
    if hasattr(reply, "resources"):
        reply.resources.sort(key=repr)
    for each in getattr(reply, "config_resources", ()):
        each.resource_name = "settled" if each.resource_name.startswith("settled-") else each.resource_name
    for each in getattr(reply, "responses", ()):
        if any(getattr(part, "error_code", 0) == HIDDEN for part in getattr(each, "partitions", ())):
            # Apache tells the id of a topic that the client may not describe (AlterShareGroupOffsets).
            each.topic_id = bytes(16)
    for each in (reply, *getattr(reply, "coordinators", ())):
        if getattr(each, "port", 0) > 0:
            each.port = 1
    if getattr(reply, "producer_id", -1) >= 0:
        reply.producer_id = 1
    for each in getattr(reply, "results", ()):
        if hasattr(each, "usable_bytes"):
            each.usable_bytes = each.total_bytes = 0
            each.topics = []
    parts = [part for topic in getattr(reply, "responses", ()) for part in getattr(topic, "partitions", ())]
    for each in (reply, *getattr(reply, "results", ()), *parts):
        # Apache tells its own request object to the client.
        if (getattr(each, "error_message", None) or "").startswith("Request Request("):
            each.error_message = None
    return reply


def _is_settled(topic: Any) -> bool:
    return (getattr(topic, "name", None) or "").startswith("settled-")


# ---- rules


def rules(random_: random.Random) -> list[dict[str, Any]]:
    """Rules of every kind; more that allow than that deny."""
    found = []
    names = {2: TOPICS, 3: GROUPS, 4: ("kafka-cluster",), 5: IDS}
    operations = {
        2: (2, 3, 4, 5, 6, 7, 8, 10, 11),
        3: (2, 3, 6, 8, 10, 11),
        4: (2, 5, 7, 8, 9, 10, 11, 12),
        5: (2, 4, 8),
    }
    for _ in range(26):
        kind = random_.choice((2, 2, 2, 3, 3, 4, 5))
        name = random_.choice(names[kind])
        pattern = 3
        if kind != 4:
            form = random_.random()
            if form < 0.2:
                name = "*"
            elif form < 0.45:
                name, pattern = name[: random_.randint(1, len(name))], 4
        found.append(
            {
                "resource_type": kind,
                "resource_name": name,
                "resource_pattern_type": pattern,
                "principal": random_.choice(("User:ann", "User:ann", "User:bob", "User:*")),
                "host": random_.choice(("*", "*", "127.0.0.1", "10.0.0.1")),
                "operation": random_.choice(operations[kind]),
                "permission_type": 2 if random_.random() < 0.2 else 3,
            }
        )
    return found


def set_rules(side: Side, wanted: list[dict[str, Any]]) -> None:
    """These rules and no others, as the broker itself sees them."""
    every: dict[str, Any] = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1}
    anyone: dict[str, Any] = {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
    side.ask("DeleteAcls", 3, note=False, filters=[{**every, **anyone}])
    made = side.ask("CreateAcls", 3, note=False, creations=wanted)
    assert not any(each.error_code for each in made.results), made
    count = len({tuple(sorted(each.items())) for each in wanted})
    for _ in range(5000):
        shown = side.ask("DescribeAcls", 3, note=False, **every, **anyone)
        if sum(len(each.acls) for each in shown.resources) == count:
            return side.settle()
    raise AssertionError("the rules never count")


# ---- requests

Draw = random.Random
Make = Callable[[Draw], dict[str, Any]]


def _topics(draw: Draw, field: str = "name", **more: Any) -> list[dict[str, Any]]:
    return [{field: name, **more} for name in draw.sample(TOPICS, draw.randint(1, 3))]


def _group(draw: Draw) -> str:
    return draw.choice(GROUPS)


def _acl_filter(draw: Draw) -> dict[str, Any]:
    return {
        "resource_type_filter": draw.choice((1, 2, 3)),
        "resource_name_filter": draw.choice((None, "orders", "orders-2", "app")),
        "pattern_type_filter": draw.choice((1, 2, 3, 4)),
        "principal_filter": draw.choice((None, "User:ann")),
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }


def _resources(draw: Draw, **more: Any) -> list[dict[str, Any]]:
    names = [(2, name) for name in TOPICS] + [(4, "1"), (4, ""), (32, "app"), (16, "m"), (8, "1")]
    return [{"resource_type": kind, "resource_name": name, **more} for kind, name in draw.sample(names, 3)]


def _offsets(draw: Draw) -> list[dict[str, Any]]:
    part = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
    return _topics(draw, partitions=[part])


PARTITIONS = {"partition_index": 0}
REQUESTS: list[tuple[str, int, Make]] = [
    ("Metadata", 12, lambda d: {"topics": _topics(d), "include_topic_authorized_operations": True}),
    ("Metadata", 8, lambda d: {"topics": _topics(d), "include_cluster_authorized_operations": True}),
    ("Metadata", 1, lambda d: {"topics": None}),
    ("DescribeTopicPartitions", 0, lambda d: {"topics": _topics(d)}),
    (
        "Produce",
        9,
        lambda d: {
            "acks": 1,
            "timeout_ms": 1000,
            "topic_data": _topics(d, partition_data=[{"index": 0, "records": batch(1)}]),
        },
    ),
    (
        "Fetch",
        12,
        lambda d: {
            "max_wait_ms": 0,
            "session_epoch": -1,
            "topics": _topics(d, "topic", partitions=[{"partition": 0, "partition_max_bytes": 1000}]),
        },
    ),
    ("ListOffsets", 7, lambda d: {"topics": _topics(d, partitions=[{"partition_index": 0, "timestamp": -1}])}),
    (
        "OffsetForLeaderEpoch",
        4,
        lambda d: {"topics": _topics(d, "topic", partitions=[{"partition": 0, "leader_epoch": 0}])},
    ),
    (
        "DeleteRecords",
        2,
        lambda d: {"timeout_ms": 1000, "topics": _topics(d, partitions=[{"partition_index": 0, "offset": 0}])},
    ),
    ("DescribeProducers", 0, lambda d: {"topics": _topics(d, partition_indexes=[0])}),
    ("FindCoordinator", 4, lambda d: {"key_type": 0, "coordinator_keys": d.sample(GROUPS, 2)}),
    ("FindCoordinator", 3, lambda d: {"key_type": 0, "key": _group(d)}),
    ("FindCoordinator", 6, lambda d: {"key_type": 2, "coordinator_keys": ["app:AAAAAAAAAAAAAAAAAAAAAQ:0"]}),
    ("Heartbeat", 4, lambda d: {"group_id": _group(d), "member_id": "m", "generation_id": 1}),
    ("LeaveGroup", 5, lambda d: {"group_id": _group(d), "members": [{"member_id": "m"}]}),
    ("SyncGroup", 5, lambda d: {"group_id": _group(d), "member_id": "m", "generation_id": 1}),
    ("JoinGroup", 9, lambda d: {"group_id": _group(d), "session_timeout_ms": 1, "protocol_type": "consumer"}),
    (
        "OffsetCommit",
        8,
        lambda d: {"group_id": _group(d), "generation_id_or_member_epoch": -1, "topics": _offsets(d)},
    ),
    ("OffsetFetch", 7, lambda d: {"group_id": _group(d), "topics": _topics(d, partition_indexes=[0])}),
    ("OffsetFetch", 7, lambda d: {"group_id": _group(d), "topics": None}),
    (
        "OffsetFetch",
        9,
        lambda d: {
            "groups": [{"group_id": each, "topics": _topics(d, partition_indexes=[0])} for each in d.sample(GROUPS, 2)]
        },
    ),
    ("OffsetFetch", 9, lambda d: {"groups": [{"group_id": _group(d), "topics": None}]}),
    (
        "OffsetDelete",
        0,
        lambda d: {"group_id": _group(d), "topics": [{"name": "payments", "partitions": [PARTITIONS]}]},
    ),
    ("DescribeGroups", 5, lambda d: {"groups": d.sample(GROUPS, 2), "include_authorized_operations": True}),
    ("ConsumerGroupDescribe", 1, lambda d: {"group_ids": d.sample(GROUPS, 2), "include_authorized_operations": True}),
    ("DeleteGroups", 2, lambda d: {"groups_names": ["app-none", "none"]}),
    ("ListGroups", 4, lambda d: {}),
    (
        "ConsumerGroupHeartbeat",
        1,
        lambda d: {
            "group_id": "app-none",
            "member_id": "m",
            "member_epoch": 5,
            "subscribed_topic_names": [each["name"] for each in _topics(d)],
        },
    ),
    ("CreateTopics", 7, lambda d: {"validate_only": True, "timeout_ms": 9000, "topics": _creations(d)}),
    ("DeleteTopics", 5, lambda d: {"topic_names": ["absent", "orders-none"], "timeout_ms": 9000}),
    ("CreatePartitions", 3, lambda d: {"validate_only": True, "timeout_ms": 9000, "topics": _topics(d, count=4)}),
    ("DescribeConfigs", 4, lambda d: {"resources": _resources(d, configuration_keys=["retention.ms", "none"])}),
    ("IncrementalAlterConfigs", 1, lambda d: {"validate_only": True, "resources": _resources(d, configs=[])}),
    ("AlterConfigs", 2, lambda d: {"validate_only": True, "resources": _resources(d, configs=[])}),
    ("ListConfigResources", 1, lambda d: {"resource_types": [2]}),
    ("DescribeLogDirs", 4, lambda d: {"topics": []}),
    (
        "AlterReplicaLogDirs",
        2,
        lambda d: {"dirs": [{"path": "/nowhere", "topics": [{"name": "orders", "partitions": [0]}]}]},
    ),
    ("InitProducerId", 4, lambda d: {"transactional_id": None, "transaction_timeout_ms": 1000}),
    ("InitProducerId", 4, lambda d: {"transactional_id": d.choice(IDS), "transaction_timeout_ms": 2_000_000_000}),
    (
        "AddPartitionsToTxn",
        3,
        lambda d: {
            "v3_and_below_transactional_id": d.choice(IDS),
            "v3_and_below_producer_id": 99_999,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": _topics(d, partitions=[0]),
        },
    ),
    (
        "AddOffsetsToTxn",
        3,
        lambda d: {
            "transactional_id": d.choice(IDS),
            "producer_id": 99_999,
            "producer_epoch": 0,
            "group_id": _group(d),
        },
    ),
    ("EndTxn", 3, lambda d: {"transactional_id": d.choice(IDS), "producer_id": 99_999, "producer_epoch": 0}),
    ("DescribeTransactions", 0, lambda d: {"transactional_ids": d.sample(IDS, 2)}),
    ("ListTransactions", 1, lambda d: {}),
    (
        "WriteTxnMarkers",
        1,
        lambda d: {
            "markers": [
                {
                    "producer_id": 99_999,
                    "producer_epoch": 0,
                    "transaction_result": True,
                    "coordinator_epoch": 0,
                    "topics": [{"name": "absent", "partition_indexes": [0]}],
                }
            ]
        },
    ),
    ("DescribeCluster", 1, lambda d: {"include_cluster_authorized_operations": True}),
    ("DescribeClientQuotas", 1, lambda d: {"components": [], "strict": False}),
    ("AlterClientQuotas", 1, lambda d: {"entries": [_quota()], "validate_only": True}),
    ("DescribeUserScramCredentials", 0, lambda d: {"users": [{"name": "nobody"}]}),
    ("AlterUserScramCredentials", 0, lambda d: {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []}),
    ("DescribeAcls", 3, _acl_filter),
    ("DeleteAcls", 3, lambda d: {"filters": [{**_acl_filter(d), "principal_filter": "User:none"}]}),
    ("CreateAcls", 3, lambda d: {"creations": [_wrong_rule(d)]}),
    ("UnregisterBroker", 0, lambda d: {"broker_id": 77}),
    ("ElectLeaders", 2, lambda d: {"topic_partitions": [{"topic": "orders", "partitions": [0]}], "timeout_ms": 9000}),
    (
        "AlterPartitionReassignments",
        0,
        lambda d: {"topics": _topics(d, partitions=[{"partition_index": 9}]), "timeout_ms": 9000},
    ),
    ("ListPartitionReassignments", 0, lambda d: {"topics": [{"name": "orders", "partition_indexes": [0]}]}),
    ("UpdateFeatures", 1, lambda d: {"feature_updates": [], "validate_only": True}),
    ("DescribeDelegationToken", 3, lambda d: {"owners": []}),
]


#: Share coordinators come up in their own time.
RANDOM = [each for each in REQUESTS if each[:2] != ("FindCoordinator", 6)]


def _creations(draw: Draw) -> list[dict[str, Any]]:
    return [
        {"name": name, "num_partitions": 1, "replication_factor": 1}
        for name in draw.sample(("orders", "orders-new", "pay-new", "absent"), 2)
    ]


def _quota() -> dict[str, Any]:
    entity = [{"entity_type": "user", "entity_name": "u"}]
    return {"entity": entity, "ops": [{"key": "producer_byte_rate", "value": 1000.0, "remove": False}]}


def _wrong_rule(draw: Draw) -> dict[str, Any]:
    right: dict[str, Any] = {
        "resource_type": 2,
        "resource_name": "orders",
        "resource_pattern_type": 3,
        "principal": "User:ann",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return right | draw.choice(
        (
            {"resource_name": ""},
            {"principal": "ann"},
            {"resource_type": 4},
        )
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_random_requests_by_random_principals_are_answered_alike(pair: Oracle, seed: int) -> None:
    def script(side: Side) -> None:
        draw = random.Random(seed)
        actors = {user: Actor(side, user) for user in ("ann", "bob", "cid", "admin")}
        try:
            for step in range(STEPS):
                if step % 65 == 0:
                    set_rules(side, rules(draw))
                name, version, make = draw.choice(RANDOM)
                actors[draw.choice(("ann", "ann", "ann", "bob", "cid", "admin"))].ask(name, version, make(draw))
        finally:
            for actor in actors.values():
                actor.close()

    pair.compare(script)


def test_each_request_of_a_principal_without_rules_is_answered_alike(pair: Oracle) -> None:
    def script(side: Side) -> None:
        set_rules(side, [])
        draw = random.Random(7)
        actor = Actor(side, "cid")
        try:
            for name, version, make in REQUESTS:
                actor.ask(name, version, make(draw))
        finally:
            actor.close()

    pair.compare(script)


def test_offsets_of_hidden_topics_are_answered_alike(pair: Oracle) -> None:
    """A group that is named twice, a group that is not there, and what is refused together with what may be done."""
    rule = {"resource_pattern_type": 3, "principal": "User:cid", "host": "*", "permission_type": 3}
    allowed = [(3, "*", READ), (3, "*", DELETE), (2, "orders", READ)]
    wanted = [{**rule, "resource_type": kind, "resource_name": name, "operation": done} for kind, name, done in allowed]
    part = {"partition_index": 0}
    groups = [("app", "secret"), ("app", "orders"), ("app", "payments"), ("app-none", "secret"), ("app", None)]

    def named(field: str, topic: str | None, **more: Any) -> list[dict[str, Any]] | None:
        return None if topic is None else [{field: topic, **more}]

    def script(side: Side) -> None:
        set_rules(side, wanted)
        actor = Actor(side, "cid")
        try:
            fetched = [{"group_id": id_, "topics": named("name", name, partition_indexes=[0])} for id_, name in groups]
            actor.ask("OffsetFetch", 9, {"groups": fetched})
            shares = [
                {"group_id": id_, "topics": named("topic_name", name, partitions=[0])}
                for id_, name in groups
                if name in ("secret", "payments")
            ]
            actor.ask("DescribeShareGroupOffsets", 1, {"groups": shares})
            for group in ("app", "app-none"):
                for topics in (["secret"], ["secret", "absent"], ["secret", "orders"]):
                    ask = {"group_id": group}
                    actor.ask(
                        "OffsetFetch", 7, ask | {"topics": [{"name": n, "partition_indexes": [0]} for n in topics]}
                    )
                    if group != "app":
                        # Of a group that is there the offsets would be gone for the tests behind this one.
                        actor.ask(
                            "OffsetDelete", 0, ask | {"topics": [{"name": n, "partitions": [part]} for n in topics]}
                        )
                    shared = [{"topic_name": n, "partitions": [part | {"start_offset": 0}]} for n in topics]
                    actor.ask("AlterShareGroupOffsets", 0, ask | {"topics": shared})
                    actor.ask("DeleteShareGroupOffsets", 0, ask | {"topics": [{"topic_name": n} for n in topics]})
        finally:
            actor.close()

    pair.compare(script)


def test_kafka_acls_says_the_same(both: tuple[SaslServer, SaslServer]) -> None:
    uses = (
        ("--add", "--allow-principal", "User:tool", "--producer", "--topic", "made-by-tool", "--transactional-id", "t"),
        ("--add", "--allow-principal", "User:tool", "--consumer", "--topic", "made", "--group", "g"),
        ("--add", "--deny-principal", "User:tool", "--operation", "All", "--topic", "p", *PREFIXED),
        ("--add", "--allow-principal", "User:tool", "--operation", "Alter", "--cluster"),
        ("--list", "--principal", "User:tool"),
        ("--list", "--topic", "pre", "--resource-pattern-type", "match"),
        ("--remove", "--force", "--deny-principal", "User:tool", "--operation", "All", "--topic", "p", *PREFIXED),
        ("--remove", "--force", "--topic", "made-by-tool"),
        ("--list", "--principal", "User:tool"),
        ("--add", "--allow-principal", "tool", "--operation", "Read", "--topic", "t"),
    )
    with ApacheTools() as tool:
        for use in uses:
            theirs, ours = (tool("kafka-acls", "--bootstrap-server", one.bootstrap, *use) for one in both)
            assert ours.code == theirs.code, use
            assert sorted(ours.out.splitlines()) == sorted(theirs.out.splitlines()), use
