"""A controller opens a broker's envelope: the request is its client's, and the answer goes back in an envelope."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.call.reply import Later
from ottla.broker.controllers.envelope import Requester, opened, wrap
from ottla.broker.handlers.active_controller import open_envelope
from ottla.broker.handlers.quorum import change_voters, describe_quorum
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import METADATA_TOPIC
from ottla.wire.api import API, ApiKey
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.api.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ResponsePartitionData,
    ResponseTopicData,
)

_CREATE = API[ApiKey.CREATE_TOPICS]
_CLIENT = Requester("User:ann", "192.0.2.7", "admin-1", 7, 41)
_REQUEST = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=3, replication_factor=1)])


class _Controller:
    """A controller whose one handler answers what the test says."""

    def __init__(self, answer: Any, *, unstable: bool = False) -> None:
        self.answer, self.calls = answer, list[tuple[Any, Any]]()
        handler = SimpleNamespace(function=self._handle, error_response=self._failed)
        self.guarded: list[Any] = []
        handlers = {ApiKey.CREATE_TOPICS: handler, ApiKey.DESCRIBE_QUORUM: handler}
        dispatch = SimpleNamespace(handlers=handlers, guarded=self._guard)
        node = SimpleNamespace(
            controller_dispatch=dispatch, settings=SimpleNamespace(unstable_api_versions_enable=unstable)
        )
        connection = SimpleNamespace(peer=("203.0.113.1", 9), principal="User:broker")
        self.call: Any = SimpleNamespace(node=node, connection=connection)

    def _guard(self, handler: Any) -> Any:
        self.guarded.append(handler)
        return handler

    def _handle(self, call: Any, request: Any) -> Any:
        self.calls.append((call, request))
        if isinstance(self.answer, KafkaError):
            raise self.answer
        return self.answer

    def _failed(self, request: Any, version: int, error: KafkaError) -> Any:
        return CreateTopicsResponse(throttle_time_ms=error.code + version)

    def open(self, client: Requester = _CLIENT) -> Any:
        return open_envelope(self.call, wrap(_CREATE, _REQUEST, client))


def _answer(reply: Any) -> Any:
    return opened(reply.value, _CREATE, _CLIENT)


def test_a_forwarded_request_is_its_clients() -> None:
    controller = _Controller(CreateTopicsResponse(throttle_time_ms=5))
    assert _answer(controller.open()) == CreateTopicsResponse(throttle_time_ms=5)
    ((call, request),) = controller.calls
    assert (call.principal, call.user, call.client_address, call.client_id) == (
        "User:ann",
        "ann",
        "192.0.2.7",
        "admin-1",
    )
    assert (call.version, call.correlation_id, request) == (7, 41, _REQUEST)
    assert len(controller.guarded) == 1, "the client's rights are checked, not only the broker's"


@pytest.mark.parametrize("waits", [False, True])
def test_an_error_is_an_answer_of_the_api_and_the_wrong_controller_one_of_the_envelope(waits: bool) -> None:
    for error, told in (
        (KafkaError(ErrorCode.POLICY_VIOLATION), CreateTopicsResponse(throttle_time_ms=44 + 7)),
        (KafkaError(ErrorCode.NOT_CONTROLLER), None),
    ):
        controller = _Controller(Later() if waits else error)
        reply = controller.open()
        if waits:
            assert not reply.resolved
            controller.answer.resolve(error)
        if told is None:
            assert reply.value is error, "the broker looks for the active controller"
        else:
            assert _answer(reply) == told


@pytest.mark.parametrize("key", [ApiKey.ALTER_CLIENT_QUOTAS, None])
def test_what_a_controller_does_not_serve_is_refused(key: ApiKey | None) -> None:
    controller = _Controller(CreateTopicsResponse())
    if key is None:
        envelope = wrap(_CREATE, _REQUEST, _CLIENT)
        # The body ends too early.
        envelope.request_data = envelope.request_data[:-4]
    else:
        envelope = wrap(API[key], API[key].request(), _CLIENT._replace(version=0))
    with pytest.raises(KafkaError) as refused:
        open_envelope(controller.call, envelope)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert controller.calls == []
    said = "the request in the envelope cannot be read" if key is None else "AlterClientQuotas v0 is not served here"
    assert refused.value.message.startswith(said)


@pytest.mark.parametrize("change", [change_voters, describe_quorum])
def test_a_broker_forwards_questions_about_the_quorum_to_its_leader(change: Any) -> None:
    asked: list[Any] = []
    node = SimpleNamespace(
        quorum=SimpleNamespace(raft=SimpleNamespace(quorum=SimpleNamespace(leads=False))),
        controllers=SimpleNamespace(forward=lambda *given: asked.append(given)),
    )
    call: Any = SimpleNamespace(node=node)
    later = change(call, "the request")
    ((asked_for, request, done),) = asked
    assert (asked_for, request, later.resolved) == (call, "the request", False)
    done("the answer")
    assert later.value == "the answer"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_CONTROLLER),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        (ErrorCode.NONE, None),
    ],
)
def test_a_quorum_described_by_another_than_its_leader_sends_the_broker_elsewhere(
    error: ErrorCode, told: ErrorCode | None
) -> None:
    """As in Apache Kafka (RequestChannel); its broker asks the same node until the envelope says NOT_CONTROLLER."""
    partition = ResponsePartitionData(partition_index=0, error_code=error)
    answer = DescribeQuorumResponse(topics=[ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])])
    api, client = API[ApiKey.DESCRIBE_QUORUM], _CLIENT._replace(version=2)
    reply = open_envelope(_Controller(answer).call, wrap(api, DescribeQuorumRequest(), client))
    assert isinstance(reply, Later)
    if told is None:
        assert opened(reply.value, api, client) == answer
    else:
        assert isinstance(reply.value, KafkaError) and reply.value.code is told
