"""Everything that can be asked of a server, as plain data: what two servers on the same directories must agree on.

Rules:
- All of it comes over the wire, by the same requests to every server.
- A server that has just started may still be loading: such answers are asked for again, within a deadline.
- Leader epochs are left out: Apache Kafka raises them when a broker comes back, as it may.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, TypeVar

from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import INTERNAL_TOPICS, METADATA_TOPIC
from ottla.wire.api import describe_configs as configs
from ottla.wire.api import describe_producers as producers
from ottla.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.api.describe_client_quotas import DescribeClientQuotasRequest
from ottla.wire.api.describe_transactions import DescribeTransactionsRequest
from ottla.wire.api.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from ottla.wire.api.list_groups import ListGroupsRequest
from ottla.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.api.list_transactions import ListTransactionsRequest
from ottla.wire.api.metadata import MetadataRequest
from ottla.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.batch import BatchHeader, Record, check, read
from tests.broker.wire_client import WireClient
from tests.crash.pause import pause

_DEADLINE_S = 40.0
_LATEST, _EARLIEST, _MAX_TIMESTAMP = -1, -2, -3
_TOPIC, _BROKER, _GROUP = 2, 4, 32
_LOADING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
_Answer = TypeVar("_Answer")


class Entry(NamedTuple):
    """A record, and what its batch says of it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    codec: int
    producer_id: int
    producer_epoch: int
    sequence: int
    transactional: bool
    control: bool


class Marks(NamedTuple):
    """A partition's offsets."""

    earliest: int
    latest: int
    last_stable_offset: int
    #: (timestamp, offset) of the record with the largest timestamp.
    max_timestamp: tuple[int, int]


Partition = tuple[str, int]


@dataclass
class Inventory:
    """What `take` found."""

    cluster_id: str | None = None
    topics: dict[str, Any] = field(default_factory=dict)
    configs: dict[str, Any] = field(default_factory=dict)
    marks: dict[Partition, Marks] = field(default_factory=dict)
    records: dict[Partition, list[Entry]] = field(default_factory=dict)
    aborted: dict[Partition, list[tuple[int, int]]] = field(default_factory=dict)
    producers: dict[Partition, Any] = field(default_factory=dict)
    groups: dict[str, Any] = field(default_factory=dict)
    offsets: dict[str, Any] = field(default_factory=dict)
    transactions: dict[str, Any] = field(default_factory=dict)


def assert_same(found: Inventory, expected: Inventory) -> None:
    """Compare section by section, so that a difference is said where it is."""
    for each in fields(Inventory):
        theirs, mine = getattr(expected, each.name), getattr(found, each.name)
        if isinstance(theirs, dict):
            different = {
                key: (theirs.get(key), mine.get(key)) for key in theirs | mine if theirs.get(key) != mine.get(key)
            }
            assert different == {}, f"{each.name}: (expected, found) {_short(different)}"
        assert theirs == mine, each.name


def _short(different: dict[Any, tuple[Any, Any]]) -> str:
    return "\n".join(f"{key}:\n  {str(was)[:1500]}\n  {str(now)[:1500]}" for key, (was, now) in different.items())


def settled(bootstrap: str) -> Inventory:
    """What is there when nothing moves any more: Apache Kafka answers before markers and metadata have arrived."""
    deadline = time.monotonic() + _DEADLINE_S
    found = take(bootstrap)
    while True:
        pause(0.3)
        before, found = found, take(bootstrap)
        if found == before:
            return found
        assert time.monotonic() < deadline, f"the server is still at work after {_DEADLINE_S:.0f} s"


def take(bootstrap: str) -> Inventory:
    """Ask for everything."""
    inventory = Inventory()
    with WireClient(bootstrap) as client:
        metadata = again(lambda: client.ask(MetadataRequest(topics=None), 12), _metadata_codes)
        inventory.cluster_id = metadata.cluster_id
        for topic in metadata.topics:
            inventory.topics[topic.name] = (
                topic.topic_id.hex(),
                topic.is_internal,
                sorted((each.partition_index, tuple(each.replica_nodes)) for each in topic.partitions),
            )
        every = [
            (topic.name, each.partition_index)
            for topic in metadata.topics
            for each in topic.partitions
            if topic.name != METADATA_TOPIC
        ]
        inventory.configs = _configs(client, inventory.topics)
        for tp in sorted(every):
            inventory.producers[tp] = _producers(client, tp)
            if tp[0] not in INTERNAL_TOPICS:
                inventory.marks[tp] = marks(client, tp)
                inventory.records[tp] = list(records(client, tp, inventory.marks[tp]))
                inventory.aborted[tp] = _aborted(client, tp, inventory.marks[tp])
        inventory.groups, inventory.offsets = _groups(client)
        inventory.transactions = _transactions(client)
    return inventory


def apache_only(bootstrap: str) -> Any:
    """What a node of ours keeps in the metadata without serving it: quotas and SCRAM credentials.

    There must be some: Apache Kafka answers that it has them before it shows them.
    """
    deadline = time.monotonic() + _DEADLINE_S
    with WireClient(bootstrap) as client:
        while True:
            quotas = client.ask(DescribeClientQuotasRequest(), 1).entries
            scram = client.ask(DescribeUserScramCredentialsRequest(users=None), 0).results
            if quotas and scram:
                return repr(quotas), repr(scram)
            assert time.monotonic() < deadline, f"quotas are {quotas}, credentials are {scram}"
            pause(0.05)


def again(ask: Callable[[], _Answer], codes: Callable[[_Answer], Iterable[int]]) -> _Answer:
    """Ask until none of the codes in the answer says that something is still loading."""
    deadline = time.monotonic() + _DEADLINE_S
    while True:
        answer = ask()
        bad = [ErrorCode(code) for code in codes(answer) if code]
        if not bad:
            return answer
        assert _LOADING.issuperset(bad), f"{bad} in {answer}"
        assert time.monotonic() < deadline, f"still {bad} after {_DEADLINE_S:.0f} s"
        pause(0.05)


def _metadata_codes(metadata: Any) -> Iterable[int]:
    for topic in metadata.topics:
        yield topic.error_code
        yield from (each.error_code for each in topic.partitions)


def _configs(client: WireClient, topics: Iterable[str]) -> dict[str, Any]:
    wanted = [(_TOPIC, name) for name in topics] + [(_BROKER, "")]
    request = configs.DescribeConfigsRequest(
        resources=[
            configs.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for kind, name in wanted
        ]
    )
    answer = again(lambda: client.ask(request, 4), lambda found: (each.error_code for each in found.results))
    return {
        f"{each.resource_type} {each.resource_name}": {
            one.name: (one.value, one.config_source, one.read_only, one.is_sensitive) for one in each.configs
        }
        for each in answer.results
    }


def marks(client: WireClient, tp: Partition) -> Marks:
    def ask(timestamp: int, isolation_level: int = 0) -> tuple[int, int]:
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[
                ListOffsetsTopic(
                    name=tp[0], partitions=[ListOffsetsPartition(partition_index=tp[1], timestamp=timestamp)]
                )
            ],
        )
        found = again(lambda: client.ask(request, 7).topics[0].partitions[0], lambda found: (found.error_code,))
        return found.timestamp, found.offset

    return Marks(ask(_EARLIEST)[1], ask(_LATEST)[1], ask(_LATEST, 1)[1], ask(_MAX_TIMESTAMP))


def fetch(
    client: WireClient, tp: Partition, offset: int, isolation_level: int = 0, wait_ms: int = 500
) -> PartitionData:
    """One fetch of one partition."""
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=8 << 20,
        isolation_level=isolation_level,
        session_epoch=-1,
        topics=[
            FetchTopic(
                topic=tp[0],
                partitions=[FetchPartition(partition=tp[1], fetch_offset=offset, partition_max_bytes=4 << 20)],
            )
        ],
    )
    found: PartitionData = again(
        lambda: client.ask(request, 12).responses[0].partitions[0], lambda found: (found.error_code,)
    )
    return found


def read_batches(found: PartitionData) -> Iterable[tuple[BatchHeader, list[Record]]]:
    """The whole batches of a fetched partition, each with its CRC checked."""
    for batch in read(bytes(found.records or b"")):
        yield check(batch.data), batch.records()


def records(client: WireClient, tp: Partition, marks: Marks) -> Iterable[Entry]:
    offset = marks.earliest
    while offset < marks.latest:
        asked = offset
        for header, found in read_batches(fetch(client, tp, offset)):
            for index, record in enumerate(found):
                if record.offset < offset:
                    continue
                sequence = header.base_sequence + index if header.base_sequence >= 0 else -1
                yield Entry(
                    record.offset,
                    record.timestamp,
                    record.key,
                    record.value,
                    tuple(record.headers),
                    header.codec,
                    header.producer_id,
                    header.producer_epoch,
                    sequence,
                    header.is_transactional,
                    header.is_control,
                )
            offset = max(offset, header.last_offset + 1)
        assert offset > asked, f"nothing at {tp} {offset} below its end {marks.latest}"


def _aborted(client: WireClient, tp: Partition, marks: Marks) -> list[tuple[int, int]]:
    """The aborted transactions that a consumer who reads the whole partition is told of."""
    found: dict[tuple[int, int], None] = {}
    offset = marks.earliest
    while offset < marks.last_stable_offset:
        answer = fetch(client, tp, offset, isolation_level=1)
        for each in answer.aborted_transactions or ():
            found[each.producer_id, each.first_offset] = None
        lasts = [batch.header.last_offset for batch in read(bytes(answer.records or b""))]
        assert lasts, f"nothing stable at {tp} {offset} below {marks.last_stable_offset}"
        offset = lasts[-1] + 1
    return sorted(found)


def _producers(client: WireClient, tp: Partition) -> Any:
    request = producers.DescribeProducersRequest(topics=[producers.TopicRequest(name=tp[0], partition_indexes=[tp[1]])])
    found = again(lambda: client.ask(request, 0).topics[0].partitions[0], lambda found: (found.error_code,))
    return sorted(
        (
            each.producer_id,
            each.producer_epoch,
            each.last_sequence,
            each.last_timestamp,
            each.current_txn_start_offset,
        )
        for each in found.active_producers
    )


def _groups(client: WireClient) -> tuple[dict[str, Any], dict[str, Any]]:
    listed = again(lambda: client.ask(ListGroupsRequest(), 5), lambda found: (found.error_code,))
    groups: dict[str, Any] = {
        each.group_id: (each.protocol_type, each.group_state, each.group_type) for each in listed.groups
    }
    consumer = sorted(name for name, (_, _, kind) in groups.items() if kind == "consumer")
    described = again(
        lambda: client.ask(ConsumerGroupDescribeRequest(group_ids=consumer), 1),
        lambda found: (each.error_code for each in found.groups),
    )
    for each in described.groups:
        groups[each.group_id] += (each.group_epoch, each.assignment_epoch, each.assignor_name, len(each.members))
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in sorted(groups)]
    )
    answer = again(lambda: client.ask(request, 8), lambda found: (each.error_code for each in found.groups))
    offsets = {
        group.group_id: {
            (topic.name, each.partition_index): (each.committed_offset, each.committed_leader_epoch, each.metadata)
            for topic in group.topics
            for each in topic.partitions
        }
        for group in answer.groups
    }
    return groups, offsets


def _transactions(client: WireClient) -> dict[str, Any]:
    listed = again(lambda: client.ask(ListTransactionsRequest(), 0), lambda found: (found.error_code,))
    ids = sorted(each.transactional_id for each in listed.transaction_states)
    answer = again(
        lambda: client.ask(DescribeTransactionsRequest(transactional_ids=ids), 0),
        lambda found: (each.error_code for each in found.transaction_states),
    )
    return {
        each.transactional_id: (
            each.transaction_state,
            each.producer_id,
            each.producer_epoch,
            each.transaction_timeout_ms,
            sorted((topic.topic, sorted(topic.partitions)) for topic in each.topics),
        )
        for each in answer.transaction_states
    }
