"""Delegation tokens in the metadata: Create-, Renew- and ExpireDelegationToken (keys 38 to 40), and their expiry.

Rules:
- A token belongs to its owner, who can differ from the requester. Its owner and its renewers may renew and expire it.
- A token expires at its expiry timestamp, which a renewal moves, and at the latest at its max timestamp. Expired tokens
  are removed every `delegation.token.expiry.check.interval.ms`.
- A principal may request at most `TOKENS_MAX` tokens, each with at most `NAMES_LENGTH_MAX` characters of names; beyond
  that it gets POLICY_VIOLATION. Apache Kafka has no limit: one client could fill the memory of every node.
- Without `delegation.token.secret.key` every request gets DELEGATION_TOKEN_AUTH_DISABLED.

Timestamps are wall time in ms. KIPs: 48, 373, 900.
"""

from __future__ import annotations

from typing import Any

from ottla.controller.decision import Decision
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import uuid_text
from ottla.kernel.named import NamedTuple
from ottla.kernel.ports import Rng
from ottla.metadata.feature import TOKENS_FROM
from ottla.metadata.image import Image
from ottla.security.token_keys import TokenKeys
from ottla.settings.server.settings import ServerSettings
from ottla.wire.api import create_delegation_token as create
from ottla.wire.api.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from ottla.wire.api.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from ottla.wire.record.security import DelegationTokenRecord, RemoveDelegationTokenRecord

_INT64_MAX = (1 << 63) - 1
_ID_BYTES = 16
#: The first version of Create- and DescribeDelegationToken that has the requester (KIP-373).
REQUESTER_FROM = 3
#: The maximum number of tokens that one step removes.
REMOVED_AT_ONCE = 1000
TOKENS_MAX = 10_000
NAMES_LENGTH_MAX = 4096


class TokenCommand(NamedTuple):
    """A request about a token, the requesting principal (`User:ann`), and the request's version."""

    request: Any
    requester: str
    version: int


class TokenControl:
    """The token commands. The controller creates it and passes the time with each call."""

    def __init__(self, settings: ServerSettings, rng: Rng) -> None:
        self._settings = settings
        self._rng = rng
        key = settings.delegation_token_secret_key
        self._keys = TokenKeys(key) if key else None

    def decide(self, image: Image, command: TokenCommand, now_ms: int) -> Decision:
        """Decide a request."""
        refusal = ErrorCode.NONE
        if self._keys is None:
            refusal = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        elif image.metadata_version < TOKENS_FROM:
            refusal = ErrorCode.UNSUPPORTED_VERSION
        request = command.request
        if isinstance(request, create.CreateDelegationTokenRequest):
            return self._create(image, command, now_ms, refusal)
        if isinstance(request, RenewDelegationTokenRequest):
            return self._renew(image, request, command.requester, now_ms, refusal)
        return self._expire(image, request, command.requester, now_ms, refusal)

    def _create(self, image: Image, command: TokenCommand, now_ms: int, refusal: ErrorCode) -> Decision:
        request, requester, version = command
        response = create_response(request, requester, version)
        if not refusal and any(renewer.principal_type != "User" for renewer in request.renewers):
            refusal = ErrorCode.INVALID_PRINCIPAL_TYPE
        if not refusal and _exceeds_limits(image, response, request, requester):
            refusal = ErrorCode.POLICY_VIOLATION
        if refusal:
            response.error_code = refusal
            return Decision([], response)
        assert self._keys is not None
        lifetime_ms = self._settings.delegation_token_max_lifetime_ms
        if request.max_lifetime_ms > 0:
            lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
        record = DelegationTokenRecord(
            owner=f"{response.principal_type}:{response.principal_name}",
            requester=requester,
            renewers=[f"{renewer.principal_type}:{renewer.principal_name}" for renewer in request.renewers],
            issue_timestamp=now_ms,
            max_timestamp=_capped_sum(now_ms, lifetime_ms),
            token_id=self._new_id(),
        )
        record.expiration_timestamp = min(
            record.max_timestamp, _capped_sum(now_ms, self._settings.delegation_token_expiry_time_ms)
        )
        response.issue_timestamp_ms = now_ms
        response.expiry_timestamp_ms, response.max_timestamp_ms = record.expiration_timestamp, record.max_timestamp
        response.token_id, response.hmac = record.token_id, self._keys.hmac(record.token_id)
        return Decision([record], response)

    def _new_id(self) -> str:
        """Return a random id without a leading dash, as in Apache Kafka, so that no command takes it for an option."""
        while (token_id := uuid_text(self._rng.randbytes(_ID_BYTES))).startswith("-"):
            pass
        return token_id

    def _find(
        self, image: Image, secret: bytes, requester: str, now_ms: int
    ) -> tuple[DelegationTokenRecord | None, ErrorCode, bool]:
        """Return the token, the error if the requester may not change it, and whether it has expired."""
        assert self._keys is not None
        token = self._keys.find(image.tokens, secret)
        if token is None:
            return None, ErrorCode.DELEGATION_TOKEN_NOT_FOUND, False
        is_allowed = requester == token.owner or requester in token.renewers
        has_expired = _has_expired(token, now_ms)
        return token, ErrorCode.NONE if is_allowed else ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, has_expired

    def _renew(
        self, image: Image, request: RenewDelegationTokenRequest, requester: str, now_ms: int, refusal: ErrorCode
    ) -> Decision:
        token = None
        if not refusal:
            token, refusal, has_expired = self._find(image, bytes(request.hmac), requester, now_ms)
            if has_expired:
                refusal = ErrorCode.DELEGATION_TOKEN_EXPIRED
        if refusal or token is None:
            return Decision([], RenewDelegationTokenResponse(error_code=refusal))
        period_ms = self._settings.delegation_token_expiry_time_ms
        if request.renew_period_ms > 0:
            period_ms = min(period_ms, request.renew_period_ms)
        expiry = min(token.max_timestamp, _capped_sum(now_ms, period_ms))
        renewed = _with_expiry(token, expiry)
        return Decision([renewed], RenewDelegationTokenResponse(expiry_timestamp_ms=expiry))

    def _expire(
        self, image: Image, request: ExpireDelegationTokenRequest, requester: str, now_ms: int, refusal: ErrorCode
    ) -> Decision:
        token, period_ms = None, request.expiry_time_period_ms
        if not refusal:
            token, refusal, has_expired = self._find(image, bytes(request.hmac), requester, now_ms)
            if not refusal and has_expired and period_ms >= 0:
                refusal = ErrorCode.DELEGATION_TOKEN_EXPIRED
        if refusal or token is None:
            return Decision([], ExpireDelegationTokenResponse(error_code=refusal))
        if period_ms < 0:
            removal = RemoveDelegationTokenRecord(token_id=token.token_id)
            return Decision([removal], ExpireDelegationTokenResponse(expiry_timestamp_ms=now_ms))
        expiry = min(token.max_timestamp, _capped_sum(now_ms, period_ms))
        shortened = _with_expiry(token, expiry)
        return Decision([shortened], ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry))


def create_response(
    request: create.CreateDelegationTokenRequest, requester: str, version: int
) -> create.CreateDelegationTokenResponse:
    """Build the part that every response to a token creation has: the owner and the requester."""
    kind, _, name = requester.partition(":")
    response = create.CreateDelegationTokenResponse(principal_type=kind, principal_name=name)
    if version >= REQUESTER_FROM:
        response.token_requester_principal_type, response.token_requester_principal_name = kind, name
    if request.owner_principal_name:
        response.principal_type = request.owner_principal_type or ""
        response.principal_name = request.owner_principal_name
    return response


def _exceeds_limits(
    image: Image,
    response: create.CreateDelegationTokenResponse,
    request: create.CreateDelegationTokenRequest,
    requester: str,
) -> bool:
    names = [requester, response.principal_type, response.principal_name]
    names += [f"{renewer.principal_type}:{renewer.principal_name}" for renewer in request.renewers]
    if sum(map(len, names)) > NAMES_LENGTH_MAX:
        return True
    return (
        len(image.tokens) >= TOKENS_MAX
        and sum(token.requester == requester for token in image.tokens.values()) >= TOKENS_MAX
    )


def expired_tokens(image: Image, now_ms: int) -> list[Any]:
    """Return the records that remove expired tokens, at most REMOVED_AT_ONCE."""
    has_expired = (token.token_id for token in image.tokens.values() if _has_expired(token, now_ms))
    return [
        RemoveDelegationTokenRecord(token_id=token)
        for token, _ in zip(has_expired, range(REMOVED_AT_ONCE), strict=False)
    ]


def _with_expiry(token: DelegationTokenRecord, expiry: int) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issue_timestamp,
        max_timestamp=token.max_timestamp,
        expiration_timestamp=expiry,
        token_id=token.token_id,
    )


def _has_expired(token: DelegationTokenRecord, now_ms: int) -> bool:
    return token.max_timestamp < now_ms or token.expiration_timestamp < now_ms


def _capped_sum(now_ms: int, duration_ms: int) -> int:
    return min(_INT64_MAX, now_ms + duration_ms)
