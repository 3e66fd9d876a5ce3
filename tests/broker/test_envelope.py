"""Envelopes (KIP-590): what a broker wraps the controller unwraps, and what is broken has Apache's error codes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.controllers.channel import is_from_elsewhere
from ottla.broker.controllers.envelope import FORWARDABLE, Requester, opened, seal, unwrap, wrap
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.api import API, ApiKey
from ottla.wire.api.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.api.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.wire.api.unregister_broker import UnregisterBrokerResponse
from ottla.wire.compile import decoder

CREATE = API[ApiKey.CREATE_TOPICS]
WHO = Requester("User:ANONYMOUS", "192.0.2.7", "admin-1", 7, 41)
REQUEST = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=3, replication_factor=1)])


@given(
    name=st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    address=st.ip_addresses().map(str),
    version=st.sampled_from(CREATE.versions),
    number=st.integers(0, 2**31 - 1),
)
def test_what_was_wrapped_is_unwrapped(name: str, address: str, version: int, number: int) -> None:
    origin = Requester(f"User:{name}", address, "me", version, number)
    envelope = wrap(CREATE, REQUEST, origin)
    api, found, position = unwrap(envelope)
    assert (api, found) == (CREATE, origin)
    request, end = decoder(CREATE.request, version)(envelope.request_data, position)
    assert request == REQUEST and end == len(envelope.request_data)
    response = CreateTopicsResponse(throttle_time_ms=3)
    assert opened(seal(CREATE, origin, response), CREATE, origin) == response


def test_the_principal_is_apache_s_bytes() -> None:
    # DefaultKafkaPrincipalBuilder.serialize: int16 version 0, compact strings, tokenAuthenticated, no tagged fields.
    assert wrap(CREATE, REQUEST, WHO).request_principal == b"\0\0\x05User\x0aANONYMOUS\0\0"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"client_host_address": b"\1\2\3"}, ErrorCode.INVALID_REQUEST),
        ({"request_principal": b""}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": None}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b"\0\1\x05User\x02A\0\0"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_data": b""}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": b"\x7f\xff\0\0\0\0\0\0"}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": b"\0\x13\0\7\0\0\0"}, ErrorCode.UNSUPPORTED_VERSION),
        # Produce is no request that a broker forwards.
        ({"request_data": b"\0\0\0\x0b\0\0\0\1\0\0\0"}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_broken_envelope_has_apache_s_code(change: dict[str, bytes], code: ErrorCode) -> None:
    envelope = wrap(CREATE, REQUEST, WHO)
    for name, value in change.items():
        setattr(envelope, name, value)
    with pytest.raises(KafkaError) as caught:
        unwrap(envelope)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("response", "code"),
    [
        (EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION), ErrorCode.UNSUPPORTED_VERSION),
        (EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED), ErrorCode.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(), ErrorCode.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(response_data=b"\0\0"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (seal(CREATE, WHO._replace(correlation_id=9), CreateTopicsResponse()), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_broken_envelope_that_came_back_is_a_server_error(response: EnvelopeResponse, code: ErrorCode) -> None:
    answer = opened(response, CREATE, WHO)
    assert isinstance(answer, KafkaError) and answer.code == code


@given(st.binary(max_size=60))
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(KafkaError):
        unwrap(EnvelopeRequest(request_data=data, request_principal=data, client_host_address=data))


def test_controllers_take_all_that_brokers_forward() -> None:
    for key in FORWARDABLE:
        assert "controller" in API[key].listeners


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS])
def test_a_part_of_an_answer_may_say_that_it_is_not_the_controllers(code: ErrorCode) -> None:
    parts = [CreatableTopicResult(name="a"), CreatableTopicResult(name="b", error_code=code)]
    assert is_from_elsewhere(CreateTopicsResponse(topics=parts)) == (code is ErrorCode.NOT_CONTROLLER)
    assert is_from_elsewhere(UnregisterBrokerResponse(error_code=code)) == (code is ErrorCode.NOT_CONTROLLER)
