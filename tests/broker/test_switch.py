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
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from tests.broker.switch import REQUESTS, SWITCHES, errors
from tests.broker.wire_client import GROUP, WireClient, make_coordinators


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


def test_a_request_before_the_coordinators_are_there_makes_nothing() -> None:
    with ottla.Node() as node, WireClient(node.bootstrap_servers) as client:
        for name in ("Heartbeat", "OffsetFetch", "ConsumerGroupHeartbeat", "StreamsGroupHeartbeat"):
            request, version, _ = REQUESTS[name]
            assert [code for code, _ in errors(client.ask(request, version)) if code] == [ErrorCode.NOT_COORDINATOR]
        init = client.ask(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000), 5)
        assert init.error_code == ErrorCode.NOT_COORDINATOR
        with Admin(node.bootstrap_servers) as admin:
            assert admin.list_topics(internal=True) == []
