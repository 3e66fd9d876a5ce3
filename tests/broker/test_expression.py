"""Expressions that clients send to a node: read as RE2, and none runs through an engine that goes back."""

from __future__ import annotations

import time
from typing import Any

import pytest

import ottla
from ottla.kernel.error import ErrorCode
from ottla.metadata.image import CLIENT_METRICS
from ottla.settings.schema import _split
from ottla.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.api.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tests.broker.test_transaction import begun
from tests.broker.wire_client import WireClient

#: On an engine that goes back each of these is years of work over a name of sixty letters. CPU time, which a busy
#: machine does not change.
_SECONDS_MAX = 2.0


def listed(client: WireClient, pattern: str) -> ListTransactionsResponse:
    reply: ListTransactionsResponse = client.ask(ListTransactionsRequest(transactional_id_pattern=pattern), 2)
    return reply


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(a|aa)+$", "(.*a){25}b"])
def test_a_pattern_of_transactional_ids_costs_little(node: ottla.Node, client: WireClient, pattern: str) -> None:
    begun(client, "a" * 60 + "!")
    began = time.process_time()
    reply = listed(client, pattern)
    assert time.process_time() - began < _SECONDS_MAX
    assert reply.error_code == ErrorCode.NONE
    assert "a" * 60 + "!" not in [each.transactional_id for each in reply.transaction_states]


def test_a_pattern_matches_whole_ids_of_any_characters(node: ottla.Node, client: WireClient) -> None:
    for name in ("zahlung-übrig", "zahlung-2"):
        begun(client, name)
    assert [each.transactional_id for each in listed(client, "zahlung-[^0-9]+").transaction_states] == ["zahlung-übrig"]
    assert [each.transactional_id for each in listed(client, r"zahlung-\d").transaction_states] == ["zahlung-2"]
    assert listed(client, "zahlung").transaction_states == []


@pytest.mark.parametrize("pattern", [r"(a)\1", "(?=a)", "(?<!a)b", "a**", "("])
def test_what_re2_does_not_know_is_refused(client: WireClient, pattern: str) -> None:
    assert listed(client, pattern).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize(("pattern", "taken"), [("(a+)+", True), (r"(a)\1", False), ("(?=a)a", False)])
def test_a_pattern_of_client_metrics_is_of_re2(client: WireClient, pattern: str, taken: bool) -> None:
    configs = [AlterableConfig(name="match", value=f"client_software_name={pattern}")]
    resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name="m", configs=configs)
    (answer,) = client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert answer.error_code == (ErrorCode.NONE if taken else ErrorCode.INVALID_CONFIG)


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("a , b,c", ("a", "b", "c")),
        ("a", ("a",)),
        (",", ("", "")),
        ("  a  ,b  ", ("  a", "b  ")),
        (" , a, ", ("", "a", "")),
    ],
)
def test_a_list_is_split_as_java_splits_it(text: str, items: tuple[str, ...]) -> None:
    assert _split(text) == items


def test_a_list_of_spaces_costs_little() -> None:
    began = time.process_time()
    assert _split(" " * 32_767 + "a") == (" " * 32_767 + "a",)
    assert time.process_time() - began < 0.5


def test_transactions_are_listed_by_their_states_and_producers(node: ottla.Node, client: WireClient) -> None:
    ours = {name: begun(client, name).producer_id for name in ("listed-1", "listed-2")}

    def found(**filters: Any) -> set[str]:
        reply = client.ask(ListTransactionsRequest(transactional_id_pattern="listed-.", **filters), 2)
        return {each.transactional_id for each in reply.transaction_states}

    first = ours["listed-1"]
    assert found() == found(state_filters=["Empty", "Ongoing", "Ongoing"]) == set(ours)
    assert found(producer_id_filters=[first, 1 << 40, first]) == {"listed-1"}
    assert found(producer_id_filters=[1 << 40]) == found(state_filters=["PrepareEpochFence"]) == set()
