"""The envelope of a client's request to the active controller (KIP-590): encoding and decoding at both ends.

Rules:
- The request keeps its own header, so the controller sees the client's version, correlation id and client id; the
  client's principal and address are fields of the envelope.
- The response has its header, as the client would get it.
- Errors of the envelope itself are as in Apache Kafka (EnvelopeUtils, ForwardingManager): INVALID_REQUEST for an API
  that cannot be forwarded or an invalid address, UNSUPPORTED_VERSION for unreadable data, and
  PRINCIPAL_DESERIALIZATION_FAILURE. A broker turns them into UNKNOWN_SERVER_ERROR for its client, except
  UNSUPPORTED_VERSION, which closes the client's connection so that it asks for the versions again.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from ottla.broker.call.handler import Call
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.named import NamedTuple
from ottla.net.answer_frames import FRAME_BYTES_MAX
from ottla.net.request import decoded, encoded
from ottla.wire.api import API, Api, ApiKey
from ottla.wire.api.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.wire.compile import decode, encode
from ottla.wire.header import RequestHeader, ResponseHeader, request_header_version, response_header_version
from ottla.wire.record.principal import DefaultPrincipalData
from ottla.wire.type import Malformed

#: The APIs that a broker may forward (ApiKeys.forwardable).
FORWARDABLE = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
    }
)
_LENGTH_BYTES = 4
#: More than an envelope adds to the request and its principal.
_ENVELOPE_BYTES = 128
_PRINCIPAL_VERSION = 0


class Requester(NamedTuple):
    """The client that sent a forwarded request."""

    #: As in `Call.principal`: `User:ANONYMOUS`.
    principal: str
    #: An IP address.
    address: str
    client_id: str
    version: int
    correlation_id: int


def origin_of(call: Call) -> Requester:
    """The client of a request, and the request's version."""
    return Requester(call.principal, call.client_address, call.client_id, call.version, call.correlation_id)


def wrap(api: Api, request: Any, origin: Requester, bytes_max: int = FRAME_BYTES_MAX) -> EnvelopeRequest:
    """The envelope of a client's request. OttlaError if the request cannot be encoded in its version.

    KafkaError if a controller that takes requests of `bytes_max` would close the connection instead of reading it.
    """
    frame = b"".join(encoded(request, api, origin.version, origin.correlation_id, origin.client_id))
    principal = _principal_bytes(origin.principal)
    if len(frame) + len(principal) + _ENVELOPE_BYTES > bytes_max:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"a request of {len(frame)} bytes cannot be forwarded to the controller: with its envelope it is longer "
            f"than socket.request.max.bytes={bytes_max}; send a shorter one",
        )
    return EnvelopeRequest(
        request_data=frame[_LENGTH_BYTES:],
        request_principal=principal,
        client_host_address=ipaddress.ip_address(origin.address.partition("%")[0]).packed,
    )


def opened(envelope: EnvelopeResponse, api: Api, origin: Requester) -> Any:
    """The response to the client's request, or the KafkaError that it fails with."""
    if envelope.error_code == ErrorCode.UNSUPPORTED_VERSION:
        return KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the active controller does not take this version")
    if envelope.error_code or envelope.response_data is None:
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the controller refused an envelope: {envelope.error_code}")
    try:
        return decoded(api, origin.version, origin.correlation_id, memoryview(envelope.response_data))
    except Malformed as error:
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the controller's answer cannot be read: {error}")


def unwrap(envelope: EnvelopeRequest) -> tuple[Api, Requester, int]:
    """(forwarded API, its client, position of its body in `request_data`). KafkaError if it is invalid."""
    principal = _principal_text(envelope.request_principal)
    try:
        address = str(ipaddress.ip_address(bytes(envelope.client_host_address)))
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the client's address in the envelope is none") from None
    data = bytes(envelope.request_data)
    try:
        key, version = int.from_bytes(data[:2], "big"), int.from_bytes(data[2:4], "big")
        api = API[ApiKey(key)]
        header, position = decode(RequestHeader, request_header_version(key, version), data)
    except (Malformed, KeyError, ValueError) as error:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"the header in the envelope cannot be read: {error}") from None
    if api.key not in FORWARDABLE:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{api.name} is not forwarded")
    return api, Requester(principal, address, header.client_id or "", version, header.correlation_id), position


def seal(api: Api, origin: Requester, response: Any) -> EnvelopeResponse:
    """The envelope of a response."""
    header = ResponseHeader(correlation_id=origin.correlation_id)
    head = encode(header, response_header_version(int(api.key), origin.version))
    return EnvelopeResponse(response_data=head + encode(response, origin.version))


def _principal_bytes(principal: str) -> bytes:
    kind, _, name = principal.partition(":")
    return _PRINCIPAL_VERSION.to_bytes(2, "big") + encode(
        DefaultPrincipalData(type=kind, name=name), _PRINCIPAL_VERSION
    )


def _principal_text(data: bytes | memoryview | None) -> str:
    raw = bytes(data or b"")
    try:
        if int.from_bytes(raw[:2], "big") != _PRINCIPAL_VERSION:
            raise Malformed(f"version {int.from_bytes(raw[:2], 'big')}")
        principal, _ = decode(DefaultPrincipalData, _PRINCIPAL_VERSION, raw, 2)
    except Malformed as error:
        raise KafkaError(
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, f"the principal in the envelope cannot be read: {error}"
        ) from None
    return f"{principal.type}:{principal.name}"
