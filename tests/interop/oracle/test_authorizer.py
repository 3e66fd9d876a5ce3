"""The authorizer beside Apache's: the same rules, the same requests by the same principals, the same answers."""

import os
import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from ottla.client import Acl, AclFilter, AclOperation, AclResource, Admin, PatternType
from tests.client.conftest import eventually
from tests.interop import server as servers
from tests.interop.apache_tool import ApacheTools
from tests.interop.oracle.asked import GROUPS, IDS, RANDOM, REQUESTS, TOPICS
from tests.interop.oracle.side import CLOSED, Connection, Oracle, Side, message
from tests.interop.secured import USERS, SaslServer

pytestmark = pytest.mark.interop

STEPS = 260
INVALID_TRANSACTION_TIMEOUT = 50
READ, DELETE = 3, 6
HIDDEN = 29
SEEDS = tuple(map(int, os.environ.get("OTTLA_AUTHORIZER_SEEDS", "1,2").split(",")))

PREFIXED = ("--resource-pattern-type", "prefixed")
AUTHORIZER = {
    **servers.HELD,
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

    def committed() -> bool:
        side.ask("FindCoordinator", 4, note=False, key_type=0, coordinator_keys=[group])
        answer = side.ask(
            "OffsetCommit",
            8,
            note=False,
            group_id=group,
            generation_id_or_member_epoch=-1,
            topics=[{"name": "orders", "partitions": parts}, {"name": "secret", "partitions": parts}],
        )
        return bool(answer.topics[0].partitions[0].error_code == 0)

    eventually(committed)


def make_coordinators(side: Side) -> None:
    """Transaction coordinators that have loaded."""

    def loaded(transactional_id: str) -> bool:
        side.ask("FindCoordinator", 4, note=False, key_type=1, coordinator_keys=[transactional_id])
        answer = side.ask(
            "InitProducerId", 4, note=False, transactional_id=transactional_id, transaction_timeout_ms=2_000_000_000
        )
        return bool(answer.error_code == INVALID_TRANSACTION_TIMEOUT)

    for transactional_id in IDS:
        eventually(partial(loaded, transactional_id))


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
        """Ask, and note the answer."""
        reply = self.reply(name, version, values)
        self.side.note(f"{self.user} {name} v{version} {values}", _settled(reply), version)

    def reply(self, name: str, version: int, values: dict[str, Any]) -> Any:
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
        return reply

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
    side.settle()


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


@pytest.mark.parametrize("hidden", ["orders-2", None])
def test_an_expression_matches_only_topics_that_the_client_may_describe(pair: Oracle, hidden: str | None) -> None:
    rule = {"principal": "User:cid", "host": "*", "permission_type": 3, "operation": READ}
    wanted = [
        {**rule, "resource_type": 3, "resource_pattern_type": 4, "resource_name": "by-expression"},
        {**rule, "resource_type": 2, "resource_pattern_type": 4, "resource_name": "orders"},
    ]
    if hidden is not None:
        denied = {"resource_type": 2, "resource_pattern_type": 3, "resource_name": hidden, "operation": 8}
        wanted += [
            {**rule, "resource_type": 2, "resource_pattern_type": 3, "resource_name": "*"},
            rule | denied | {"permission_type": 2},
        ]

    def script(side: Side) -> None:
        set_rules(side, wanted)
        actor = Actor(side, "cid")
        try:
            side.note("assigned by an expression", _assigned(side, actor, f"by-expression-{hidden}"), 1)
        finally:
            actor.close()

    pair.compare(script)


def _assigned(side: Side, actor: Actor, group: str) -> list[str]:
    """The names of the topics of this test's that a member who subscribes to every topic is assigned."""
    member: dict[str, Any] = {"group_id": group, "member_id": "m"}
    joined = {"rebalance_timeout_ms": 9000, "subscribed_topic_regex": "[a-z].*", "topic_partitions": []}
    answer = actor.reply("ConsumerGroupHeartbeat", 1, member | joined | {"member_epoch": 0})
    found: list[str] = []

    def settled() -> bool:
        nonlocal answer
        if answer.assignment is not None and answer.assignment.topic_partitions:
            ids = [{"topic_id": each.topic_id, "name": None} for each in answer.assignment.topic_partitions]
            topics = side.ask("Metadata", 12, note=False, topics=ids).topics
            found[:] = sorted(each.name for each in topics if each.name in TOPICS)
            return True
        answer = actor.reply("ConsumerGroupHeartbeat", 1, member | {"member_epoch": answer.member_epoch})
        return False

    eventually(settled)
    actor.reply("ConsumerGroupHeartbeat", 1, member | {"member_epoch": -1})
    return found


def test_our_admin_client_is_told_what_its_principal_may_do(both: tuple[SaslServer, SaslServer]) -> None:
    rules = [
        Acl(AclResource.TOPIC, "orders", "User:cid", AclOperation.READ),
        Acl(AclResource.TOPIC, "ord", "User:cid", AclOperation.ALTER_CONFIGS, pattern=PatternType.PREFIXED),
        Acl(AclResource.GROUP, "app", "User:cid", AclOperation.DESCRIBE),
        Acl(AclResource.CLUSTER, "kafka-cluster", "User:cid", AclOperation.ALTER),
    ]
    for server in both:
        signed_in = {
            "bootstrap.servers": server.sasl,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "cid",
            "sasl.password": USERS["cid"],
        }
        with Admin(server.bootstrap) as root, Admin(signed_in) as admin:
            root.delete_acls([AclFilter()]).check()
            root.create_acls(rules).check()
            eventually(partial(_are_rules, root, rules))
            found = [
                admin.describe_topic("orders", include_authorized_operations=True).authorized_operations,
                admin.describe_group("app", include_authorized_operations=True).authorized_operations,
                admin.describe_cluster(include_authorized_operations=True).authorized_operations,
            ]
        reading = frozenset(
            {AclOperation.READ, AclOperation.DESCRIBE, AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS}
        )
        altering = frozenset({AclOperation.ALTER, AclOperation.DESCRIBE})
        assert found == [reading, frozenset({AclOperation.DESCRIBE}), altering], server.name


def _are_rules(admin: Admin, rules: list[Acl]) -> bool:
    return set(admin.describe_acls()) == set(rules)


def test_kafka_acls_says_the_same(pair: Oracle) -> None:
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
            theirs, ours = (
                tool("kafka-acls", "--bootstrap-server", side.server.bootstrap, *use)
                for side in (pair.reference, pair.subject)
            )
            assert ours.code == theirs.code, use
            assert sorted(ours.out.splitlines()) == sorted(theirs.out.splitlines()), use
            # The next use finds what this one changed.
            pair.reference.settle()
