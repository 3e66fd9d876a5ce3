"""Kinds of groups that a feature's level or a setting switches off: what is refused, and what goes on.

The table is Apache Kafka 4.3.1's; `tests/interop/oracle/test_switch.py` asks it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import ottla
from ottla.client import Admin, Downgrade
from ottla.kernel.error import ErrorCode
from ottla.wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.batch import read
from ottla.wire.record.transaction import parse
from tests.broker.switch import REQUESTS, SWITCHES, errors
from tests.broker.wire_client import GROUP, TRANSACTION, WireClient, make_coordinators


@pytest.fixture(scope="module")
def node() -> Iterator[ottla.Node]:
    with ottla.Node() as one:
        begin(one)
        yield one


def begin(node: ottla.Node) -> None:
    """Make the groups' topic."""
    with WireClient(node.bootstrap_servers) as client:
        make_coordinators(client, GROUP)


def refused(node: ottla.Node) -> set[str]:
    """The requests that are answered with UNSUPPORTED_VERSION; each of them in Apache Kafka's words."""
    found = set()
    with WireClient(node.bootstrap_servers) as client:
        for name, (request, version, says) in REQUESTS.items():
            answer: Any = client.ask(request, version)
            for code, message in errors(answer):
                if code == ErrorCode.UNSUPPORTED_VERSION:
                    found.add(name)
                    assert message == says, name
    return found


def test_everything_is_served_at_the_highest_levels(node: ottla.Node) -> None:
    assert refused(node) == set()


@pytest.mark.parametrize("feature", ["group.version", "share.version", "streams.version"])
def test_a_level_of_zero_switches_a_kind_off(node: ottla.Node, feature: str) -> None:
    with Admin(node.bootstrap_servers) as admin:
        admin.update_features({feature: 0}, downgrade=Downgrade.SAFE).check()
        try:
            assert refused(node) == SWITCHES[feature]
        finally:
            admin.update_features({feature: 1}).check()
    assert refused(node) == set()


@pytest.mark.parametrize(
    ("protocols", "features"),
    [
        ("classic", ["group.version", "streams.version"]),
        ("classic,share", ["group.version", "streams.version"]),
        ("classic,streams", ["group.version"]),
        ("classic,consumer", ["streams.version"]),
    ],
)
def test_a_protocol_left_out_of_the_setting_is_switched_off(protocols: str, features: list[str]) -> None:
    with ottla.Node(settings={"group.coordinator.rebalance.protocols": protocols}) as node:
        begin(node)
        assert refused(node) == set().union(*(SWITCHES[each] for each in features))


def test_what_is_switched_off_leaves_nothing_behind() -> None:
    with ottla.Node(settings={"group.coordinator.rebalance.protocols": "classic"}) as node:
        begin(node)
        with Admin(node.bootstrap_servers) as admin:
            admin.update_features({"share.version": 0}, downgrade=Downgrade.SAFE).check()
            refused(node)
            assert admin.list_groups() == []
            assert "__share_group_state" not in [each.name for each in admin.list_topics(internal=True)]


@pytest.mark.parametrize("level", [0, 1, 2])
def test_transactions_are_stored_as_their_level_says(level: int) -> None:
    with ottla.Node(settings={"transaction.state.log.num.partitions": 1}) as node:
        with Admin(node.bootstrap_servers) as admin:
            admin.update_features({"transaction.version": level}, downgrade=Downgrade.SAFE).check()
        with WireClient(node.bootstrap_servers) as client:
            make_coordinators(client, TRANSACTION)
            node.create_topic("t")
            for _ in range(2):
                # The second one fences the transaction of the first.
                while (
                    init := client.ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000), 4)
                ).error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
                    pass
                added = AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id="x",
                    v3_and_below_producer_id=init.producer_id,
                    v3_and_below_producer_epoch=init.producer_epoch,
                    v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
                )
                assert (
                    not client.ask(added, 3)
                    .results_by_topic_v3_and_below[0]
                    .results_by_partition[0]
                    .partition_error_code
                )
            wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
            request = FetchRequest(
                session_epoch=-1, topics=[FetchTopic(topic="__transaction_state", partitions=[wanted])]
            )
            data = client.ask(request, 12).responses[0].partitions[0].records
        records = [
            (record.key or b"", record.value or b"") for batch in read(bytes(data)) for record in batch.records()
        ]
        assert len(records) > 3
        assert {int.from_bytes(value[:2], "big") for _, value in records} == {min(level, 1)}
        assert max(parse(key, value)[1].client_transaction_version for key, value in records) == level


def test_a_request_before_the_coordinators_are_there_makes_nothing() -> None:
    with ottla.Node() as node, WireClient(node.bootstrap_servers) as client:
        for name in ("Heartbeat", "OffsetFetch", "ConsumerGroupHeartbeat", "StreamsGroupHeartbeat"):
            request, version, _ = REQUESTS[name]
            assert [code for code, _ in errors(client.ask(request, version)) if code] == [ErrorCode.NOT_COORDINATOR]
        init = client.ask(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000), 5)
        assert init.error_code == ErrorCode.NOT_COORDINATOR
        with Admin(node.bootstrap_servers) as admin:
            assert admin.list_topics(internal=True) == []
