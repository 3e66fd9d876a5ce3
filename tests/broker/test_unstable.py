"""`unstable.api.versions.enable` and `unstable.feature.versions.enable`: what each opens, and what stays shut."""

from __future__ import annotations

from typing import Any

import pytest

import ottla
from ottla.client import Admin
from ottla.kernel.error import ErrorCode
from ottla.wire.api import API, ApiKey
from ottla.wire.api.api_versions import ApiVersionsRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from tests.broker.wire_client import TRANSACTION, WireClient, make_coordinators


def highest(client: WireClient) -> dict[int, int]:
    answer = client.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
    return {each.api_key: each.max_version for each in answer.api_keys}


@pytest.mark.parametrize("on", [False, True])
def test_versions_that_are_still_designed_are_served_on_request(on: bool) -> None:
    with (
        ottla.Node(settings={"unstable.api.versions.enable": on}) as node,
        WireClient(node.bootstrap_servers) as client,
    ):
        found = highest(client)
        assert {key for key in found if found[key] != API[ApiKey(key)].stable_versions[-1]} == (
            {ApiKey.INIT_PRODUCER_ID} if on else set()
        )
        if not on:
            client.send(InitProducerIdRequest(transactional_id=None), 6)
            with pytest.raises(ConnectionError):
                client.receive(ApiKey.INIT_PRODUCER_ID, 6)
            return
        make_coordinators(client, TRANSACTION)
        asked: dict[str, Any] = {"transactional_id": "x", "transaction_timeout_ms": 1000}
        assert client.ask(InitProducerIdRequest(transactional_id=None), 6).error_code == 0
        assert client.ask(InitProducerIdRequest(**asked), 6).error_code == 0
        two_phase = client.ask(InitProducerIdRequest(**asked, enable2_pc=True), 6)
        assert two_phase.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        kept = client.ask(InitProducerIdRequest(**asked, keep_prepared_txn=True), 6)
        assert kept.error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("on", [False, True])
def test_levels_that_are_still_designed_may_be_used_on_request(on: bool) -> None:
    with ottla.Node(settings={"unstable.feature.versions.enable": on}) as node, Admin(node.bootstrap_servers) as admin:
        # A new cluster gets the highest level there is, as in Apache Kafka.
        levels = admin.describe_features()["metadata.version"]
        assert (levels.finalized, levels.max_supported) == ((31, 31) if on else (30, 30))


@pytest.mark.parametrize("opened", ["api", "feature"])
def test_a_controllers_listener_and_a_brokers_offer_levels_by_another_setting_each(opened: str) -> None:
    with ottla.Node(settings={f"unstable.{opened}.versions.enable": True}) as node:
        controllers = f"127.0.0.1:{node._running().controller_listeners[0].port}"
        found = []
        for address in (node.bootstrap_servers, controllers):
            with WireClient(address) as client:
                answer = client.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
            [level] = [each.max_version for each in answer.supported_features if each.name == "metadata.version"]
            found.append(level)
    assert found == ([30, 31] if opened == "api" else [31, 30])
