"""What a broker's answer leaves out has failed: no admin call takes silence for success. Without a socket."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.client import AsyncAdmin, TopicPartition
from ottla.client.admin.acl import Acl, AclFilter, AclOperation, AclResource
from ottla.client.admin.credential import ScramDeletion, ScramMechanism
from ottla.client.admin.quota import QuotaEntity
from ottla.client.admin.replica import Replica
from ottla.client.admin.result import ConfigResource, GroupDescription, NewTopic, ResourceType, Results
from ottla.client.connection.cluster import GROUP, Cluster
from ottla.client.connection.metadata import ClusterNode
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.api.consumer_group_describe import ConsumerGroupDescribeResponse, DescribedGroup
from ottla.wire.api.describe_quorum import DescribeQuorumResponse, ResponseTopicData
from ottla.wire.api.leave_group import LeaveGroupResponse, MemberResponse
from ottla.wire.api.list_partition_reassignments import ListPartitionReassignmentsResponse
from ottla.wire.api.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.api.update_features import UpdatableFeatureResult, UpdateFeaturesResponse

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
TOPIC = ConfigResource(ResourceType.TOPIC, "t")
ACL = Acl(AclResource.TOPIC, "t", "User:ann", AclOperation.READ)


class Silent:
    """A broker that answers every request and says nothing in it, but what `says` holds."""

    def __init__(self) -> None:
        self.says: dict[type, object] = {}

    def supports(self, *_: object) -> bool:
        return True

    def version_of(self, *_: object) -> int:
        return 9

    async def call(self, _: object, response: type, **__: object) -> object:
        return self.says.get(response) or response()


class OneBroker(Cluster):
    """A cluster of a silent broker that leads both partitions and is every coordinator."""

    broker = Silent()

    async def any(self) -> Any:
        return self.broker

    async def node(self, *_: object) -> Any:
        return self.broker

    async def coordinator(self, *_: object, **__: object) -> Any:
        return self.broker

    async def update(self, *_: object) -> None:
        return


def asked(call: Callable[[AsyncAdmin], Awaitable[Any]], *says: object) -> Any:
    """What `call` gives when the broker leaves out everything but `says`."""

    async def run() -> Any:
        admin = AsyncAdmin("127.0.0.1:1")
        admin._cluster = cluster = OneBroker(admin._settings)
        cluster.broker.says = {type(one): one for one in says}
        partitions = [MetadataResponsePartition(partition_index=number, leader_id=1) for number in range(2)]
        cluster.metadata.want(["t"], 0)
        cluster.metadata.apply(
            MetadataResponse(
                brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=1)],
                topics=[MetadataResponseTopic(name="t", partitions=partitions)],
            ),
            0,
        )
        return await call(admin)

    return asyncio.run(run())


#: Each call about named things, and their keys.
CALLS: dict[str, tuple[Callable[[AsyncAdmin], Awaitable[Results[Any, Any]]], list[Any]]] = {
    "describe_topics": (lambda admin: admin.describe_topics(["t", "u"]), ["t", "u"]),
    "create_topics": (lambda admin: admin.create_topics([NewTopic("t"), NewTopic("u")]), ["t", "u"]),
    "delete_topics": (lambda admin: admin.delete_topics(["t", "u"]), ["t", "u"]),
    "create_partitions": (lambda admin: admin.create_partitions({"t": 2, "u": 3}), ["t", "u"]),
    "elect_leaders": (lambda admin: admin.elect_leaders(iter([ONE, TWO])), [ONE, TWO]),
    "describe_configs": (lambda admin: admin.describe_configs([TOPIC]), [TOPIC]),
    "alter_configs": (lambda admin: admin.alter_configs({TOPIC: {"retention.ms": 1}}), [TOPIC]),
    "describe_groups": (lambda admin: admin.describe_groups(["g", "h"]), ["g", "h"]),
    "delete_groups": (lambda admin: admin.delete_groups(["g", "h"]), ["g", "h"]),
    "alter_group_offsets": (lambda admin: admin.alter_group_offsets("g", {ONE: 1, TWO: 2}), [ONE, TWO]),
    "delete_group_offsets": (lambda admin: admin.delete_group_offsets("g", iter([ONE, TWO])), [ONE, TWO]),
    "alter_share_group_offsets": (lambda admin: admin.alter_share_group_offsets("g", {ONE: 1, TWO: 2}), [ONE, TWO]),
    "delete_share_group_offsets": (lambda admin: admin.delete_share_group_offsets("g", iter(["t", "u"])), ["t", "u"]),
    "list_offsets": (lambda admin: admin.list_offsets({ONE: -1, TWO: -2}), [ONE, TWO]),
    "delete_records": (lambda admin: admin.delete_records({ONE: 1, TWO: 2}), [ONE, TWO]),
    "alter_partition_reassignments": (
        lambda admin: admin.alter_partition_reassignments({ONE: [1], TWO: None}),
        [ONE, TWO],
    ),
    "alter_replica_log_dirs": (
        lambda admin: admin.alter_replica_log_dirs({Replica("t", 0, 1): "/d"}),
        [Replica("t", 0, 1)],
    ),
    "describe_producers": (lambda admin: admin.describe_producers([ONE, TWO]), [ONE, TWO]),
    "describe_producers of a broker": (
        lambda admin: admin.describe_producers(iter([ONE, TWO]), broker=1),
        [ONE, TWO],
    ),
    "describe_transactions": (lambda admin: admin.describe_transactions(["x", "y"]), ["x", "y"]),
    "create_acls": (lambda admin: admin.create_acls([ACL]), [ACL]),
    "delete_acls": (lambda admin: admin.delete_acls([AclFilter()]), [AclFilter()]),
    "alter_client_quotas": (
        lambda admin: admin.alter_client_quotas(iter([({"user": "ann"}, {"producer_byte_rate": 1.0})])),
        [QuotaEntity((("user", "ann"),))],
    ),
    "describe_scram_credentials": (
        lambda admin: admin.describe_scram_credentials(iter(["ann", "bob"])),
        ["ann", "bob"],
    ),
    "alter_scram_credentials": (
        lambda admin: admin.alter_scram_credentials([ScramDeletion("ann", ScramMechanism.SCRAM_SHA_256)]),
        ["ann"],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_an_answer_leaves_out_has_failed(name: str) -> None:
    call, keys = CALLS[name]
    results = asked(call)
    assert {key: error.code for key, error in results.errors.items()} == dict.fromkeys(
        keys, ErrorCode.UNKNOWN_SERVER_ERROR
    )
    with pytest.raises(KafkaError, match="answer leaves out"):
        results.check()


def test_every_call_with_results_is_tried() -> None:
    giving = {
        name
        for name in dir(AsyncAdmin)
        if not name.startswith("_")
        and str(getattr(getattr(AsyncAdmin, name), "__annotations__", {}).get("return", "")).startswith("Results")
    }
    # Their keys are asked for one by one, or are not named by the caller.
    assert giving - {name.split()[0] for name in CALLS} == {
        "describe_log_dirs",
        "fence_producers",
        "list_share_group_offsets",
        "update_features",
    }


def test_what_the_answer_holds_stands_beside_what_it_leaves_out() -> None:
    said = UpdateFeaturesResponse(results=[UpdatableFeatureResult(feature="a")])
    results = asked(lambda admin: admin.update_features({"a": 1, "b": 1}), said)
    assert results.succeeded == {"a": None}
    assert list(results.errors) == ["b"]
    # Later versions have one answer for all.
    assert asked(lambda admin: admin.update_features({"a": 1, "b": 1})).check() == {"a": None, "b": None}


def test_an_error_of_all_features_is_told_of_each_whatever_stands_beside_it() -> None:
    said = UpdateFeaturesResponse(
        error_code=ErrorCode.FEATURE_UPDATE_FAILED,
        error_message="not now",
        results=[UpdatableFeatureResult(feature="a")],
    )
    results = asked(lambda admin: admin.update_features({"a": 1, "b": 1}), said)
    assert {name: (error.code, error.message) for name, error in results.errors.items()} == dict.fromkeys(
        "ab", (ErrorCode.FEATURE_UPDATE_FAILED, "not now")
    )
    single = UpdatableFeatureResult(feature="a", error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message="too high")
    other = UpdatableFeatureResult(feature="b")
    results = asked(
        lambda admin: admin.update_features({"a": 1, "b": 1}), UpdateFeaturesResponse(results=[single, other])
    )
    assert results.succeeded == {"b": None}
    assert (results.errors["a"].code, results.errors["a"].message) == (ErrorCode.INVALID_UPDATE_VERSION, "too high")


def test_members_that_the_answer_leaves_out_have_not_left() -> None:
    def remove(admin: AsyncAdmin) -> Awaitable[None]:
        return admin.remove_group_members("g", ["one", "two"])

    left = [MemberResponse(group_instance_id="one"), MemberResponse(group_instance_id="two")]
    asked(remove, LeaveGroupResponse(members=left))
    with pytest.raises(KafkaError, match="leaves out member two"):
        asked(remove, LeaveGroupResponse(members=left[:1]))


@pytest.mark.parametrize(
    "call",
    [
        lambda admin: admin.describe_share_group("g"),
        lambda admin: admin.describe_streams_group("g"),
        lambda admin: admin.list_group_offsets("g"),
        lambda admin: admin.list_share_group_offsets("g"),
    ],
)
def test_an_answer_of_nothing_is_an_error_of_its_own(call: Callable[[AsyncAdmin], Awaitable[Any]]) -> None:
    with pytest.raises(KafkaError, match="answer leaves out"):
        asked(call)


@pytest.mark.parametrize("topics", [[], [ResponseTopicData(topic_name="q")]])
def test_an_empty_quorum_is_an_error_of_the_broker(topics: list[ResponseTopicData]) -> None:
    with pytest.raises(KafkaError, match="the broker's answer leaves out __cluster_metadata") as raised:
        asked(lambda admin: admin.describe_quorum(), DescribeQuorumResponse(topics=topics))
    assert raised.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


class Unled(OneBroker):
    """The broker is asked who the coordinator is."""

    coordinator = Cluster.coordinator  # type: ignore[assignment]


def test_an_answer_without_the_coordinator_is_an_error_of_the_broker() -> None:
    with pytest.raises(KafkaError, match="the broker's answer leaves out the coordinator of g") as raised:
        asked(lambda admin: Unled(admin._settings).coordinator(0, "g"))
    assert raised.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    ("call", "response"),
    [
        (lambda admin: admin.list_partition_reassignments(), ListPartitionReassignmentsResponse),
        (lambda admin: admin.list_partition_reassignments([ONE]), ListPartitionReassignmentsResponse),
        (lambda admin: admin.describe_quorum(), DescribeQuorumResponse),
    ],
)
def test_an_error_of_the_whole_answer_is_raised_with_its_message(
    call: Callable[[AsyncAdmin], Awaitable[Any]], response: type[Any]
) -> None:
    with pytest.raises(KafkaError, match="not for you") as raised:
        asked(call, response(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="not for you"))
    assert raised.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("call", "asks"),
    [
        (lambda admin: admin.create_topics([NewTopic("u", 1)]), True),
        (lambda admin: admin.create_topics([NewTopic("u", 1)], validate_only=True), False),
        (lambda admin: admin.create_partitions({"t": 3}), True),
    ],
)
def test_what_changes_topics_asks_for_fresh_metadata(call: Callable[[AsyncAdmin], Awaitable[Any]], asks: bool) -> None:
    async def due_ms(admin: AsyncAdmin) -> int:
        metadata = admin._cluster.metadata
        metadata._next_update_ms = 1 << 60
        assert (await call(admin)).errors is not None
        return metadata.update_due_ms()

    assert (asked(due_ms) < 1 << 60) == asks


@pytest.mark.parametrize("known", [1, 7, None])
def test_a_described_group_names_its_coordinator_as_far_as_it_is_known(known: int | None) -> None:
    async def described(admin: AsyncAdmin) -> GroupDescription:
        if known is not None:
            admin._cluster._coordinators[(GROUP, "g")] = ClusterNode(known, "there", 2)
        return await admin.describe_group("g")

    answer = ConsumerGroupDescribeResponse(groups=[DescribedGroup(group_id="g", group_state="Empty")])
    node: ClusterNode = asked(described, answer).coordinator
    assert node == {1: ClusterNode(1, "127.0.0.1", 1), 7: ClusterNode(7, "", -1), None: ClusterNode(-1, "", -1)}[known]


def test_metadata_that_is_an_error_as_a_whole_is_raised_and_replaces_nothing() -> None:
    async def updated(admin: AsyncAdmin) -> list[int]:
        with pytest.raises(KafkaError) as error:
            await Cluster.update(admin._cluster, ["t"])
        assert error.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return list(admin._cluster.metadata.nodes)

    assert asked(updated, MetadataResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))) == [1]
