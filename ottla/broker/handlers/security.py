"""SASL after its end, ACLs, delegation tokens and SCRAM credentials.

Rules:
- A request of SASL that comes here comes too late: the listener's own sign-in is over, or it has none.
- Without an authorizer there is nothing to say of ACLs: SECURITY_DISABLED, each thing of the request alone.
- Tokens are not served: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, or DELEGATION_TOKEN_AUTH_DISABLED.
- SCRAM credentials are kept in the metadata all the same, for listeners that are to have SASL (KIP-554).

An ACL whose kind of resource, pattern, operation or permission is "unknown" (0) closes the connection, as in Apache
Kafka.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.call.handler import Call, handles
from ottla.broker.call.reply import Later, Reply
from ottla.controller import acl, scram
from ottla.kernel.error import ErrorCode
from ottla.net.inbound import ANONYMOUS, PeerError
from ottla.wire.api import BOTH, CONTROLLER, ApiKey
from ottla.wire.api import create_acls as creation
from ottla.wire.api import create_delegation_token as token
from ottla.wire.api import delete_acls as deletion
from ottla.wire.api.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.wire.api.describe_delegation_token import DescribeDelegationTokenRequest, DescribeDelegationTokenResponse
from ottla.wire.api.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from ottla.wire.api.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from ottla.wire.api.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from ottla.wire.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.wire.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

_NO_AUTHORIZER = "No Authorizer is configured."
#: The number of "unknown" in Kafka's ACL enumerations. Numbers that they do not have are taken.
_UNKNOWN = 0
_REQUESTER_FROM = 3


@handles(ApiKey.SASL_HANDSHAKE, on=BOTH)
def sasl_handshake(call: Call, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """This listener has no SASL."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


@handles(ApiKey.SASL_AUTHENTICATE, on=BOTH)
def sasl_authenticate(call: Call, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """This listener has no SASL."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )


# ---- ACLs


@handles(ApiKey.DESCRIBE_ACLS, on=BOTH)
def describe_acls(call: Call, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """The rules that a filter takes; there are none without an authorizer."""
    _check(request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type)
    if call.node.authorizer is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
        )
    return acl.describe_acls(call.node.image.acls.values(), acl.filter_of(request))


@handles(ApiKey.CREATE_ACLS)
def create_acls(call: Call, request: creation.CreateAclsRequest) -> Reply:
    """The active controller writes the rules."""
    return _not_created(call, request) or _forward(call, request)


@handles(ApiKey.CREATE_ACLS, on=CONTROLLER)
def create_acls_here(call: Call, request: creation.CreateAclsRequest) -> Reply:
    """This node's controller writes the rules."""
    return _not_created(call, request) or _decide(call, request)


@handles(ApiKey.DELETE_ACLS)
def delete_acls(call: Call, request: deletion.DeleteAclsRequest) -> Reply:
    """The active controller deletes the rules."""
    return _not_deleted(call, request) or _forward(call, request)


@handles(ApiKey.DELETE_ACLS, on=CONTROLLER)
def delete_acls_here(call: Call, request: deletion.DeleteAclsRequest) -> Reply:
    """This node's controller deletes the rules."""
    return _not_deleted(call, request) or _decide(call, request)


def _not_created(call: Call, request: creation.CreateAclsRequest) -> creation.CreateAclsResponse | None:
    for each in request.creations:
        _check(each.resource_type, each.resource_pattern_type, each.operation, each.permission_type)
    if call.node.authorizer is not None:
        return None
    refused = creation.AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_AUTHORIZER)
    return creation.CreateAclsResponse(results=[refused] * len(request.creations))


def _not_deleted(call: Call, request: deletion.DeleteAclsRequest) -> deletion.DeleteAclsResponse | None:
    for each in request.filters:
        _check(each.resource_type_filter, each.pattern_type_filter, each.operation, each.permission_type)
    if call.node.authorizer is not None:
        return None
    refused = deletion.DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_AUTHORIZER)
    return deletion.DeleteAclsResponse(filter_results=[refused] * len(request.filters))


def _forward(call: Call, request: Any) -> Later:
    later = Later()
    call.node.controllers.forward(call, request, later.resolve)
    return later


def _decide(call: Call, request: Any) -> Later:
    later = Later()
    call.node.quorum.ask(request, later.resolve, call.version)
    return later


def _check(*elements: int) -> None:
    if _UNKNOWN in elements:
        raise PeerError("an ACL with an unknown element")


# ---- delegation tokens


def _no_tokens(call: Call) -> ErrorCode:
    """Kafka refuses those who did not sign in first, then all as long as there is no delegation.token.secret.key."""
    if call.principal == ANONYMOUS:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


@handles(ApiKey.CREATE_DELEGATION_TOKEN, on=BOTH)
def create_token(call: Call, request: token.CreateDelegationTokenRequest) -> token.CreateDelegationTokenResponse:
    """Not without authentication."""
    kind, name = call.principal.split(":", 1)
    response = token.CreateDelegationTokenResponse(
        error_code=_no_tokens(call),
        principal_type=kind,
        principal_name=name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
    if call.version >= _REQUESTER_FROM:
        response.token_requester_principal_type, response.token_requester_principal_name = kind, name
        if request.owner_principal_name:
            response.principal_type = request.owner_principal_type or ""
            response.principal_name = request.owner_principal_name
    return response


@handles(ApiKey.RENEW_DELEGATION_TOKEN, on=BOTH)
def renew_token(call: Call, request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse:
    """Not without authentication."""
    return RenewDelegationTokenResponse(error_code=_no_tokens(call), expiry_timestamp_ms=-1)


@handles(ApiKey.EXPIRE_DELEGATION_TOKEN, on=BOTH)
def expire_token(call: Call, request: ExpireDelegationTokenRequest) -> ExpireDelegationTokenResponse:
    """Not without authentication."""
    return ExpireDelegationTokenResponse(error_code=_no_tokens(call), expiry_timestamp_ms=-1)


@handles(ApiKey.DESCRIBE_DELEGATION_TOKEN, on=BOTH)
def describe_tokens(call: Call, request: DescribeDelegationTokenRequest) -> DescribeDelegationTokenResponse:
    """Not without authentication."""
    return DescribeDelegationTokenResponse(error_code=_no_tokens(call))


# ---- SCRAM


@handles(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, on=BOTH)
def describe_credentials(
    call: Call, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """The credentials that the metadata has; `decide` alters them."""
    return scram.describe_user_scram_credentials(call.node.image, request)
