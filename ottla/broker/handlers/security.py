"""SASL requests out of order, ACLs, delegation tokens and SCRAM credentials.

Rules:
- A SASL request that arrives here is too late: the listener has finished its sign-in, or does not use SASL.
- Without an authorizer every item of an ACL request gets SECURITY_DISABLED.
- Only a client that signed in, and not by a token, may request delegation tokens (KIP-48): on a PLAINTEXT listener
  none, whatever principal a plug-in gives it.
- SCRAM credentials are stored in the metadata even without a SASL listener, so that one can be added later (KIP-554).

An ACL whose resource type, pattern, operation or permission is "unknown" (0) closes the connection, as in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from ottla.broker.call.handler import Call, handles
from ottla.broker.call.reply import Later, Reply, in_turns
from ottla.controller import acl, delegation_token, scram
from ottla.kernel.error import ErrorCode
from ottla.net.inbound import ANONYMOUS, PeerError
from ottla.security.acl import AclOperation, AclResource
from ottla.security.token_keys import TokenKeys
from ottla.wire.api import BOTH, CONTROLLER, ApiKey
from ottla.wire.api import create_acls as creation
from ottla.wire.api import delete_acls as deletion
from ottla.wire.api import describe_delegation_token as described
from ottla.wire.api.create_delegation_token import CreateDelegationTokenRequest
from ottla.wire.api.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.wire.api.describe_delegation_token import DescribeDelegationTokenRequest, DescribeDelegationTokenResponse
from ottla.wire.api.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from ottla.wire.api.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from ottla.wire.api.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from ottla.wire.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.wire.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.wire.record.security import DelegationTokenRecord

_NO_AUTHORIZER = "No Authorizer is configured."
#: "Unknown" in Kafka's ACL enumerations. Numbers outside the enumerations are accepted.
_UNKNOWN = 0
#: About a millisecond.
_TOKENS_PER_STEP = 50


@handles(ApiKey.SASL_HANDSHAKE, on=BOTH)
def sasl_handshake(call: Call, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Refuse: the sign-in is over, or this listener has no SASL."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


@handles(ApiKey.SASL_AUTHENTICATE, on=BOTH)
def sasl_authenticate(call: Call, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """Refuse: the sign-in is over, or this listener has no SASL."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )


# ---- ACLs


@handles(ApiKey.DESCRIBE_ACLS, on=BOTH)
def describe_acls(call: Call, request: DescribeAclsRequest) -> Reply:
    """The ACLs that match a filter; SECURITY_DISABLED without an authorizer."""
    _check(request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type)
    if (missing := _no_acls(call, "No Authorizer is configured on the broker")) is not None:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=missing)
    return in_turns(call.connection, acl.describe_acls(call.node.image.acls.values(), acl.filter_of(request)))


@handles(ApiKey.CREATE_ACLS)
def create_acls(call: Call, request: creation.CreateAclsRequest) -> Reply:
    """Have the active controller create the ACLs."""
    return _not_created(call, request) or _forward(call, request)


@handles(ApiKey.CREATE_ACLS, on=CONTROLLER)
def create_acls_here(call: Call, request: creation.CreateAclsRequest) -> Reply:
    """Have this node's controller create the ACLs."""
    return _not_created(call, request) or _decide(call, request)


@handles(ApiKey.DELETE_ACLS)
def delete_acls(call: Call, request: deletion.DeleteAclsRequest) -> Reply:
    """Have the active controller delete the ACLs."""
    return _not_deleted(call, request) or _forward(call, request)


@handles(ApiKey.DELETE_ACLS, on=CONTROLLER)
def delete_acls_here(call: Call, request: deletion.DeleteAclsRequest) -> Reply:
    """Have this node's controller delete the ACLs."""
    return _not_deleted(call, request) or _decide(call, request)


def _not_created(call: Call, request: creation.CreateAclsRequest) -> creation.CreateAclsResponse | None:
    for each in request.creations:
        _check(each.resource_type, each.resource_pattern_type, each.operation, each.permission_type)
    if (missing := _no_acls(call, _NO_AUTHORIZER)) is None:
        return None
    refused = creation.AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=missing)
    return creation.CreateAclsResponse(results=[refused] * len(request.creations))


def _not_deleted(call: Call, request: deletion.DeleteAclsRequest) -> deletion.DeleteAclsResponse | None:
    for acl_filter in request.filters:
        _check(
            acl_filter.resource_type_filter,
            acl_filter.pattern_type_filter,
            acl_filter.operation,
            acl_filter.permission_type,
        )
    if (missing := _no_acls(call, _NO_AUTHORIZER)) is None:
        return None
    refused = deletion.DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=missing)
    return deletion.DeleteAclsResponse(filter_results=[refused] * len(request.filters))


def _no_acls(call: Call, without_authorizer: str) -> str | None:
    """Why this node has no ACLs; None if it has them. `without_authorizer` is Kafka's text for one of the reasons."""
    if call.node.authorizer is None:
        return without_authorizer
    return None if call.node.authorizer.has_acls else "The authorizer of this node does not use ACLs"


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
        raise PeerError("an ACL with an UNKNOWN element")


# ---- delegation tokens


def _is_refused_client(call: Call) -> bool:
    """Whether Kafka refuses the client: it did not sign in, or signed in by a token."""
    connection = call.connection
    if call.principal == ANONYMOUS or connection.signed_in_by_token:
        return True
    return not call.is_forwarded and call.node.settings.protocols.get(connection.listener_name) == "PLAINTEXT"


def _refused(call: Call, request: Any, code: ErrorCode) -> Any:
    """The response to a token request that is refused here."""
    if isinstance(request, RenewDelegationTokenRequest):
        return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)
    if isinstance(request, ExpireDelegationTokenRequest):
        return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)
    response = delegation_token.create_response(request, call.principal, call.version)
    response.error_code = code
    response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = -1
    return response


def _denial_code(call: Call, request: Any, *, here: bool) -> ErrorCode:
    """Why the principal may not create or change this token; NONE if the controller may be asked."""
    if _is_refused_client(call):
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    if isinstance(request, CreateDelegationTokenRequest):
        asked = delegation_token.create_response(request, call.principal, call.version)
        owner = f"{asked.principal_type}:{asked.principal_name}"
        authorizer = call.node.authorizer
        if authorizer is not None and owner != call.principal:
            may = authorizer.allows(call, AclOperation.CREATE_TOKENS, AclResource.USER, owner)
            if not may:
                return ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        if not here and any(renewer.principal_type != "User" for renewer in request.renewers):
            return ErrorCode.INVALID_PRINCIPAL_TYPE
    return ErrorCode.NONE


def _change_token(call: Call, request: Any, *, here: bool) -> Reply:
    code = _denial_code(call, request, here=here)
    if code:
        return _refused(call, request, code)
    later = Later()
    command = delegation_token.TokenCommand(request, call.principal, call.version)
    if here:
        call.node.quorum.ask(command, later.resolve, call.version)
    else:
        call.node.controllers.forward(call, request, later.resolve, here=command)
    return later


@handles(ApiKey.CREATE_DELEGATION_TOKEN)
@handles(ApiKey.RENEW_DELEGATION_TOKEN)
@handles(ApiKey.EXPIRE_DELEGATION_TOKEN)
def change_token(call: Call, request: Any) -> Reply:
    """Have the active controller create, renew or expire the token."""
    return _change_token(call, request, here=False)


@handles(ApiKey.CREATE_DELEGATION_TOKEN, on=CONTROLLER)
@handles(ApiKey.RENEW_DELEGATION_TOKEN, on=CONTROLLER)
@handles(ApiKey.EXPIRE_DELEGATION_TOKEN, on=CONTROLLER)
def change_token_here(call: Call, request: Any) -> Reply:
    """Have this node's controller create, renew or expire the token."""
    return _change_token(call, request, here=True)


@handles(ApiKey.DESCRIBE_DELEGATION_TOKEN, on=BOTH)
def describe_tokens(call: Call, request: DescribeDelegationTokenRequest) -> Reply:
    """The tokens that the client may see: those it owns, requested or may renew, and others by ACL."""
    if _is_refused_client(call):
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    keys = call.node.token_keys
    if keys is None:
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return in_turns(call.connection, _tokens(call, request, keys))


def _tokens(
    call: Call, request: DescribeDelegationTokenRequest, keys: TokenKeys
) -> Generator[None, None, DescribeDelegationTokenResponse]:
    owners = request.owners
    wanted = None if owners is None else {f"{each.principal_type}:{each.principal_name}" for each in owners}
    tokens = []
    for number, token in enumerate(call.node.image.tokens.values(), 1):
        if not number % _TOKENS_PER_STEP:
            yield
        if (wanted is None or wanted & {token.owner, token.requester, *token.renewers}) and _may_see(call, token):
            tokens.append(_described(token, keys, call.version))
    return DescribeDelegationTokenResponse(tokens=tokens)


def _may_see(call: Call, token: DelegationTokenRecord) -> bool:
    if call.principal in (token.owner, token.requester, *token.renewers):
        return True
    authorizer = call.node.authorizer
    if authorizer is None:
        return True
    return authorizer.allows(
        call, AclOperation.DESCRIBE, AclResource.DELEGATION_TOKEN, token.token_id
    ) or authorizer.allows(call, AclOperation.DESCRIBE_TOKENS, AclResource.USER, token.owner)


def _described(token: DelegationTokenRecord, keys: TokenKeys, version: int) -> described.DescribedDelegationToken:
    kind, name = token.owner.split(":", 1)
    token_data = described.DescribedDelegationToken(
        principal_type=kind,
        principal_name=name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=keys.hmac(token.token_id),
        renewers=[
            described.DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, name in (renewer.split(":", 1) for renewer in token.renewers)
        ],
    )
    if version >= delegation_token.REQUESTER_FROM:
        kind, name = token.requester.split(":", 1)
        token_data.token_requester_principal_type, token_data.token_requester_principal_name = kind, name
    return token_data


# ---- SCRAM


@handles(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, on=BOTH)
def describe_credentials(call: Call, request: DescribeUserScramCredentialsRequest) -> Reply:
    """The SCRAM credentials in the metadata; `decide` alters them."""
    return in_turns(call.connection, scram.describe_user_scram_credentials(call.node.image, request))
