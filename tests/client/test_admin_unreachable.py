"""Admin calls about several things, some of them at a broker that cannot be reached: the others have their outcome."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.client import (
    AsyncAdmin,
    ConfigResource,
    KafkaError,
    NotReachable,
    OffsetSpec,
    Replica,
    ResourceType,
    TopicPartition,
)
from ottla.client.connection.metadata import ClusterNode, PartitionState, TopicState
from ottla.kernel.client_error import ConnectionLost, RequestTimedOut
from ottla.kernel.ids import Uuid
from ottla.wire.api.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla.wire.api.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from ottla.wire.api.delete_records import DeleteRecordsPartitionResult, DeleteRecordsResponse, DeleteRecordsTopicResult
from ottla.wire.api.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from ottla.wire.api.describe_log_dirs import DescribeLogDirsResponse, DescribeLogDirsResult
from ottla.wire.api.describe_transactions import DescribeTransactionsResponse, TransactionState
from ottla.wire.api.incremental_alter_configs import AlterConfigsResourceResponse, IncrementalAlterConfigsResponse
from ottla.wire.api.init_producer_id import InitProducerIdResponse
from ottla.wire.api.list_offsets import ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse
from tests.client.test_admin_left_out import OneBroker, Silent

NEAR, FAR = TopicPartition("t", 0), TopicPartition("t", 1)
_BROKERS = [ConfigResource(ResourceType.BROKER, number) for number in ("2", "1")]
#: What a broker that is there says about the near half.
_SAYS: list[object] = [
    ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(name="t", partitions=[ListOffsetsPartitionResponse(partition_index=0, offset=5)])
        ]
    ),
    DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name="t", partitions=[DeleteRecordsPartitionResult(partition_index=0, low_watermark=5)]
            )
        ]
    ),
    DeleteGroupsResponse(results=[DeletableGroupResult(group_id="near")]),
    DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir="d")]),
    DescribeTransactionsResponse(transaction_states=[TransactionState(transactional_id="near")]),
    InitProducerIdResponse(producer_id=5),
    DescribeConfigsResponse(results=[DescribeConfigsResult(resource_type=4, resource_name="1")]),
    IncrementalAlterConfigsResponse(responses=[AlterConfigsResourceResponse(resource_type=4, resource_name="1")]),
    AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name="t", partitions=[AlterReplicaLogDirPartitionResult(partition_index=0)]
            )
        ]
    ),
]


class _Half(OneBroker):
    """Node 2 leads, coordinates and stores the far half, and fails in the way of `fails`."""

    fails: Exception

    async def node(self, node_id: int, *_: object) -> Any:  # type: ignore[override]
        if node_id == 2:
            raise self.fails
        return self.broker

    async def coordinator(self, _: int, key: str, **__: object) -> Any:  # type: ignore[override]
        return await self.node(2 if key.startswith("far") else 1)


CALLS: dict[str, tuple[Callable[[AsyncAdmin, list[Any]], Awaitable[Any]], list[Any]]] = {
    "list_offsets": (lambda admin, keys: admin.list_offsets(dict.fromkeys(keys, OffsetSpec.LATEST)), [FAR, NEAR]),
    "delete_records": (lambda admin, keys: admin.delete_records(dict.fromkeys(keys, 5)), [FAR, NEAR]),
    "delete_groups": (lambda admin, keys: admin.delete_groups(keys), ["far", "near"]),
    "describe_groups": (lambda admin, keys: admin.describe_groups(keys), ["far", "near"]),
    "describe_log_dirs": (lambda admin, keys: admin.describe_log_dirs(keys), [2, 1]),
    "describe_transactions": (lambda admin, keys: admin.describe_transactions(keys), ["far", "near"]),
    "fence_producers": (lambda admin, keys: admin.fence_producers(keys), ["far", "near"]),
    "describe_configs": (lambda admin, keys: admin.describe_configs(keys), [*_BROKERS]),
    "alter_configs": (lambda admin, keys: admin.alter_configs({key: {"a": "b"} for key in keys}), [*_BROKERS]),
    "alter_replica_log_dirs": (
        lambda admin, keys: admin.alter_replica_log_dirs(dict.fromkeys(keys, "/d")),
        [Replica("t", 0, 2), Replica("t", 0, 1)],
    ),
}


def asked(call: Callable[[AsyncAdmin, list[Any]], Awaitable[Any]], keys: list[Any], fails: Exception) -> Any:
    async def run() -> Any:
        settings = {"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": 60, "retry.backoff.ms": 10}
        admin = AsyncAdmin(settings)
        admin._cluster = cluster = _Half(admin._settings)
        cluster.fails = fails
        cluster.broker = Silent()
        cluster.broker.says = {type(one): one for one in _SAYS}
        states = tuple(PartitionState(number, number + 1, 0) for number in (0, 1))
        cluster.metadata.topics["t"] = TopicState("t", Uuid(b"i" * 16), False, states)
        cluster.metadata.nodes.update({number: ClusterNode(number, "h", number) for number in (1, 2)})
        return await call(admin, keys)

    return asyncio.run(run())


@pytest.mark.parametrize("fails", [NotReachable("gone"), ConnectionLost("gone"), RequestTimedOut("gone")])
@pytest.mark.parametrize("name", CALLS)
def test_what_is_at_another_broker_has_its_outcome(name: str, fails: Exception) -> None:
    call, (far, near) = CALLS[name]
    results = asked(call, [far, near], fails)
    assert set(results.errors) == ({far, near} if name == "describe_groups" else {far})
    assert isinstance(results.errors[far], KafkaError) and "gone" in str(results.errors[far])
    assert "gone" not in str(results.errors.get(near))


@pytest.mark.parametrize("name", CALLS)
def test_a_call_raises_if_no_broker_that_it_needs_can_be_reached(name: str) -> None:
    call, (far, _) = CALLS[name]
    with pytest.raises(NotReachable, match="gone"):
        asked(call, [far], NotReachable("gone"))
