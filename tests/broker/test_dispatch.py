"""Whatever a peer sends, only its own connection can be lost, and what is offered is what is served."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from importlib import import_module
from itertools import count
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ottla
from ottla.broker.call.handler import CONTROLLER_REGISTERED, REGISTERED, Handler
from ottla.broker.dispatch.dispatch import CONTROLLER_HANDLERS, HANDLERS, Dispatch
from ottla.broker.handlers import CONTROLLER_MODULES, MODULES
from ottla.broker.limits.quota import Quotas
from ottla.kernel.error import ErrorCode
from ottla.kernel.lazy import load_all
from ottla.metadata.image import Image
from ottla.wire.api import API, ApiKey
from ottla.wire.api.alter_partition import AlterPartitionRequest
from ottla.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.api.begin_quorum_epoch import BeginQuorumEpochRequest
from ottla.wire.api.broker_heartbeat import BrokerHeartbeatRequest
from ottla.wire.api.describe_cluster import DescribeClusterRequest
from ottla.wire.api.end_quorum_epoch import EndQuorumEpochRequest
from ottla.wire.api.envelope import EnvelopeRequest
from ottla.wire.api.fetch import FetchRequest, ReplicaState
from ottla.wire.api.fetch_snapshot import FetchSnapshotRequest
from ottla.wire.api.metadata import MetadataRequest
from ottla.wire.api.vote import VoteRequest
from ottla.wire.api.write_txn_markers import WriteTxnMarkersRequest
from ottla.wire.compile import decode, encode
from ottla.wire.header import RequestHeader, request_header_version
from tests.broker.wire_client import WireClient


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def header(key: int, version: int, client_id: bytes = b"\x00\x01x") -> bytes:
    return key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\7" + client_id


def serves(node: ottla.Node) -> bool:
    with WireClient(node.bootstrap_servers) as client:
        return bool(client.ask(MetadataRequest(topics=[]), 12).brokers)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0",
        header(3, 12),
        header(3, 12) + b"\0" + b"\xff" * 30,
        header(3, 99) + b"\0\0",
        header(999, 0),
        header(-1 & 0xFFFF, 0),
        header(7, 0),
        header(3, 1, client_id=b"\x7f\xffx") + b"\0\0\0\0",
        header(3, 1, client_id=b"\x00\x02\xff\xfe") + b"\0\0\0\0",
        header(0, 3) + b"\xff\xff\0\1\0\0\0\1\x7f\xff\xff\xff",
    ],
    ids=[
        "empty",
        "one byte",
        "no body",
        "garbage body",
        "version never offered",
        "api never heard of",
        "negative api",
        "api of the past",
        "client id behind the end",
        "client id that is not text",
        "two billion topics",
    ],
)
def test_a_request_that_cannot_be_read_costs_its_connection(node: ottla.Node, body: bytes) -> None:
    with WireClient(node.bootstrap_servers) as client:
        client.send_raw(framed(body))
        with pytest.raises(ConnectionError):
            client.receive_frame()
    assert serves(node)


@given(data=st.binary(max_size=200), key=st.sampled_from(sorted(HANDLERS)), version=st.integers(0, 20))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_noise_behind_a_good_header_never_stops_the_node(node: ottla.Node, data: bytes, key: int, version: int) -> None:
    with WireClient(node.bootstrap_servers) as client:
        client.send_raw(framed(header(key, version) + data))
        client.send_raw(framed(header(3, 1) + b"\0\0\0\0"))
        with contextlib.suppress(ConnectionError):
            client.receive_frame()
    assert serves(node)


def test_an_unknown_version_of_api_versions_is_answered_with_what_there_is(client: WireClient) -> None:
    client.send_raw(framed(header(18, 77) + b"\0\0\0"))
    frame = client.receive_frame()
    assert frame[:4] == b"\0\0\0\7"
    response, end = decode(ApiVersionsResponse, 0, frame, 4)
    assert end == len(frame)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    (only,) = response.api_keys
    assert (only.api_key, only.min_version, only.max_version) == (18, 0, 4)


def test_what_is_offered_is_what_is_served(client: WireClient) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
    response = client.ask(request, 4)
    for each in response.api_keys:
        offered = range(each.min_version, each.max_version + 1)
        if each.api_key == ApiKey.PRODUCE:
            assert offered.start == 0, "librdkafka must see Produce from 0 (KAFKA-18659)"
            offered = range(3, offered.stop)
        assert offered == API[ApiKey(each.api_key)].stable_versions
    assert {each.name for each in response.supported_features} >= {"metadata.version", "group.version"}
    assert {each.name: each.max_version_level for each in response.finalized_features}["transaction.version"] == 2


@pytest.mark.parametrize("key", sorted(HANDLERS))
def test_a_handler_is_where_the_table_says(key: int) -> None:
    assert HANDLERS[key].function.__module__ == MODULES[key].__name__


def test_there_is_no_handler_that_the_table_does_not_have() -> None:
    list(load_all())
    assert REGISTERED.keys() == MODULES.keys()
    assert CONTROLLER_REGISTERED.keys() == CONTROLLER_MODULES.keys()


@pytest.mark.parametrize("key", sorted(CONTROLLER_HANDLERS))
def test_a_controllers_handler_is_where_the_table_says(key: int) -> None:
    assert CONTROLLER_HANDLERS[key].function.__module__ == CONTROLLER_MODULES[key].__name__


def test_a_listener_serves_what_kafka_has_on_its_kind() -> None:
    assert all("broker" in API[ApiKey(key)].listeners for key in HANDLERS)
    assert all("controller" in API[ApiKey(key)].listeners for key in CONTROLLER_HANDLERS)


def test_a_handler_whose_module_a_thread_is_importing_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, whole = Event(), Event()
    monkeypatch.setitem(sys.modules, "gate_of_half", SimpleNamespace(begun=begun, whole=whole))
    (tmp_path / "half_of_a_handler.py").write_text(
        "from gate_of_half import begun, whole\n"
        "from ottla.broker.call.handler import REGISTERED\n"
        "REGISTERED[-1] = 'half'\n"
        "begun.set()\n"
        "assert whole.wait(30)\n"
        "REGISTERED[-1] = 'whole'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "half_of_a_handler", raising=False)

    def load() -> None:
        whole.set()
        import_module("half_of_a_handler")

    monkeypatch.setitem(MODULES, -1, SimpleNamespace(load=load))
    thread = Thread(target=import_module, args=["half_of_a_handler"])
    thread.start()
    try:
        assert begun.wait(30)
        found: object = HANDLERS[-1]
        assert found == "whole"
    finally:
        whole.set()
        thread.join()
        REGISTERED.pop(-1, None)
        sys.modules.pop("half_of_a_handler", None)


@pytest.mark.parametrize("key", sorted(HANDLERS))
def test_every_handler_is_of_an_api_that_brokers_serve(key: int) -> None:
    assert "broker" in API[ApiKey(key)].listeners


@pytest.mark.parametrize("name", ["", "no spaces", "-dash"])
def test_a_client_name_out_of_bounds_is_an_invalid_request(client: WireClient, name: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    assert client.ask(request, 3).error_code == ErrorCode.INVALID_REQUEST


def test_a_request_without_a_client_id_is_served(node: ottla.Node) -> None:
    with WireClient(node.bootstrap_servers, client_id=None) as client:
        for version in API[ApiKey.METADATA].versions:
            assert client.ask(MetadataRequest(topics=[]), version).brokers[0].node_id == 1


def test_tags_in_a_header_are_passed_over(client: WireClient) -> None:
    head = RequestHeader(request_api_key=3, request_api_version=12, correlation_id=5, client_id="x")
    body = encode(head, 2)
    assert body.endswith(b"\0")
    tagged = body[:-1] + b"\x01\x05\x03abc" + encode(MetadataRequest(topics=[]), 12)
    client.send_raw(framed(tagged))
    assert client.receive(3, 12).brokers[0].node_id == 1
    assert client.last_correlation_id == 5


def test_pipelined_requests_are_answered_in_their_order(client: WireClient) -> None:
    for _ in range(100):
        client.send(MetadataRequest(topics=[]), 12)
    for number in range(100):
        client.receive(3, 12)
        assert client.last_correlation_id == number + 1


def test_a_handler_that_cannot_be_imported_costs_the_connection_that_asked(
    node: ottla.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load() -> None:
        raise EOFError("marshal data too short")

    key = ApiKey.DESCRIBE_CLUSTER
    with WireClient(node.bootstrap_servers) as client, monkeypatch.context() as patch:
        patch.setitem(MODULES, key, SimpleNamespace(load=load))
        client.send(DescribeClusterRequest(), 1)
        assert client.sock.recv(1) == b""
    assert serves(node)


UNMEASURED = [
    (ApiKey.WRITE_TXN_MARKERS, 1, WriteTxnMarkersRequest()),
    (ApiKey.ALTER_PARTITION, 3, AlterPartitionRequest()),
    (ApiKey.ENVELOPE, 0, EnvelopeRequest()),
    (ApiKey.VOTE, 2, VoteRequest()),
    (ApiKey.BEGIN_QUORUM_EPOCH, 1, BeginQuorumEpochRequest()),
    (ApiKey.END_QUORUM_EPOCH, 1, EndQuorumEpochRequest()),
    (ApiKey.FETCH_SNAPSHOT, 1, FetchSnapshotRequest()),
    (ApiKey.FETCH, 12, FetchRequest(replica_id=0)),
    (ApiKey.FETCH, 17, FetchRequest(replica_state=ReplicaState(replica_id=2))),
]
MEASURED = [
    (ApiKey.FETCH, 12, FetchRequest()),
    (ApiKey.FETCH, 17, FetchRequest()),
    (ApiKey.METADATA, 12, MetadataRequest()),
    (ApiKey.BROKER_HEARTBEAT, 1, BrokerHeartbeatRequest()),
]


@pytest.mark.parametrize(
    ("key", "version", "request_", "is_measured"),
    [(*each, False) for each in UNMEASURED] + [(*each, True) for each in MEASURED],
)
def test_no_quota_of_clients_holds_up_replication(key: ApiKey, version: int, request_: Any, is_measured: bool) -> None:
    quotas = Quotas(11, 1, 11)
    quotas.follow(replace(Image.empty(), quotas={(("client-id", None),): {"request_percentage": 1e-6}}))
    seconds = count()
    node: Any = Mock(quotas=quotas, authorizer=None, clock=Mock(monotonic_ms=lambda: 5), work_seconds=None)
    handler = Handler(API[key], lambda call, request: API[key].response(), None)
    handlers: Any = {key: handler}
    dispatch = Dispatch(node, handlers, lambda: float(next(seconds)))
    connection, slot = Mock(closed=False, principal="User:ANONYMOUS"), Mock()
    head = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=7, client_id="x")
    body = encode(head, request_header_version(key, version)) + encode(request_, version)
    dispatch.on_frame(connection, memoryview(body), slot)
    assert slot.fill.called
    assert connection.mute.called is is_measured
