"""The admin calls for credentials: SCRAM users (KIP-554) and delegation tokens (KIP-48, KIP-373).

A password never leaves the client: it is sent salted, and hashed `iterations` times.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import field

from ottla.client.admin.call import Calls, collect
from ottla.client.admin.result import Results
from ottla.kernel.client_error import check, error_of
from ottla.kernel.error import KafkaError
from ottla.kernel.frozen import frozen
from ottla.kernel.open_enum import OpenEnum
from ottla.wire.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.wire.api.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ottla.wire.api.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla.wire.api.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from ottla.wire.api.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from ottla.wire.api.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse


class ScramMechanism(OpenEnum):
    """SCRAM mechanisms: the hash functions of passwords."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


@frozen
class ScramCredential:
    """A password to set for a user. Brokers accept `iterations` from 4,096 on."""

    user: str
    mechanism: ScramMechanism
    password: str = field(repr=False)
    iterations: int = 4_096
    #: Random if None.
    salt: bytes | None = field(default=None, repr=False)


@frozen
class ScramDeletion:
    """A password to delete."""

    user: str
    mechanism: ScramMechanism


@frozen
class DelegationToken:
    """A delegation token and its owner. Timestamps are in ms since 1970."""

    id: str
    hmac: bytes = field(repr=False)
    owner: str
    requester: str
    issued_timestamp: int
    expiry_timestamp: int
    max_timestamp: int
    renewers: tuple[str, ...] = ()


class CredentialCalls(Calls):
    """The part of `AsyncAdmin` for SCRAM users and delegation tokens. Principals are text such as `User:ann`."""

    async def describe_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> Results[str, dict[ScramMechanism, int]]:
        """The mechanisms of these users (default: all users) with their iterations."""
        wanted = None if users is None else list(users)
        names = None if wanted is None else [UserName(name=name) for name in wanted]
        response = await self._any(
            DescribeUserScramCredentialsRequest(users=names),
            DescribeUserScramCredentialsResponse,
            lambda answer: check(answer.error_code, answer.error_message),
        )
        credentials: dict[str, dict[ScramMechanism, int] | KafkaError] = {}
        for result in response.results:
            known = {ScramMechanism(info.mechanism): info.iterations for info in result.credential_infos}
            credentials[result.user] = error_of(result.error_code, result.error_message) or known
        return collect(credentials, wanted or ())

    async def alter_scram_credentials(self, changes: Iterable[ScramCredential | ScramDeletion]) -> Results[str, None]:
        """Set and delete users' passwords. DUPLICATE_RESOURCE for a user that is named twice in one call."""
        deletions, upsertions = [], []
        for change in changes:
            if isinstance(change, ScramDeletion):
                deletions.append(ScramCredentialDeletion(name=change.user, mechanism=int(change.mechanism)))
                continue
            salt = change.salt or os.urandom(32)
            # Tens of thousands of rounds would block the loop for too long.
            salted = await asyncio.to_thread(_salted, change.mechanism, change.password, salt, change.iterations)
            upsertions.append(
                ScramCredentialUpsertion(
                    name=change.user,
                    mechanism=int(change.mechanism),
                    iterations=change.iterations,
                    salt=salt,
                    salted_password=salted,
                )
            )
        request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
        response = await self._any(request, AlterUserScramCredentialsResponse)
        outcomes = {result.user: error_of(result.error_code, result.error_message) for result in response.results}
        return collect(outcomes, [*(user.name for user in deletions), *(user.name for user in upsertions)])

    # ---- delegation tokens

    async def create_delegation_token(
        self, *, owner: str | None = None, renewers: Iterable[str] = (), max_lifetime_ms: int = -1
    ) -> DelegationToken:
        """Create a token for `owner` (default: this connection's user). `max_lifetime_ms` -1: the broker's maximum."""
        owner_type, owner_name = (None, None) if owner is None else _principal(owner)
        pairs = [_principal(renewer) for renewer in renewers]
        request = CreateDelegationTokenRequest(
            owner_principal_type=owner_type,
            owner_principal_name=owner_name,
            renewers=[CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in pairs],
            max_lifetime_ms=max_lifetime_ms,
        )
        token = await self._any(request, CreateDelegationTokenResponse, lambda answer: check(answer.error_code))
        return DelegationToken(
            token.token_id,
            bytes(token.hmac),
            f"{token.principal_type}:{token.principal_name}",
            f"{token.token_requester_principal_type}:{token.token_requester_principal_name}",
            token.issue_timestamp_ms,
            token.expiry_timestamp_ms,
            token.max_timestamp_ms,
            tuple(f"{kind}:{name}" for kind, name in pairs),
        )

    async def renew_delegation_token(self, hmac: bytes, *, renew_period_ms: int = -1) -> int:
        """Extend a token by this period (-1: the broker's default). Returns the new expiry timestamp, in ms since
        1970.
        """
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=renew_period_ms)
        response = await self._any(request, RenewDelegationTokenResponse, lambda answer: check(answer.error_code))
        return response.expiry_timestamp_ms

    async def expire_delegation_token(self, hmac: bytes, *, expiry_period_ms: int = -1) -> int:
        """Let a token expire after this period (-1: at once). Returns the new expiry timestamp, in ms since 1970."""
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=expiry_period_ms)
        response = await self._any(request, ExpireDelegationTokenResponse, lambda answer: check(answer.error_code))
        return response.expiry_timestamp_ms

    async def describe_delegation_tokens(self, owners: Iterable[str] | None = None) -> list[DelegationToken]:
        """The tokens that this user may see, of these owners or of all."""
        wanted = None
        if owners is not None:
            wanted = [
                DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
                for kind, name in map(_principal, owners)
            ]
        response = await self._any(
            DescribeDelegationTokenRequest(owners=wanted),
            DescribeDelegationTokenResponse,
            lambda answer: check(answer.error_code),
        )
        return [_token(token) for token in response.tokens]


def _salted(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    algorithm: Mapping[ScramMechanism, str] = {
        ScramMechanism.SCRAM_SHA_256: "sha256",
        ScramMechanism.SCRAM_SHA_512: "sha512",
    }
    return hashlib.pbkdf2_hmac(algorithm[mechanism], password.encode(), salt, iterations)


def _principal(text: str) -> tuple[str, str]:
    kind, separator, name = text.partition(":")
    return (kind, name) if separator else ("User", text)


def _token(token: DescribedDelegationToken) -> DelegationToken:
    return DelegationToken(
        token.token_id,
        bytes(token.hmac),
        f"{token.principal_type}:{token.principal_name}",
        f"{token.token_requester_principal_type}:{token.token_requester_principal_name}",
        token.issue_timestamp,
        token.expiry_timestamp,
        token.max_timestamp,
        tuple(f"{renewer.principal_type}:{renewer.principal_name}" for renewer in token.renewers),
    )
