"""Metadata records of security: tokens, SCRAM credentials and ACLs. `metadata` has their framing."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Bytes, Int8, Int32, Int64, String, Uuid


@wire(versions="0", flexible="0+")
class DelegationTokenRecord:
    """A delegation token (KIP-48)."""

    owner: String = on("0+", default="")
    requester: String = on("0+", default="")
    renewers: list[String] = on("0+", factory=list)
    issue_timestamp: Int64 = on("0+", default=0)
    max_timestamp: Int64 = on("0+", default=0)
    expiration_timestamp: Int64 = on("0+", default=0)
    token_id: String = on("0+", default="")


@wire(versions="0", flexible="0+")
class UserScramCredentialRecord:
    """A user's SCRAM credential. Mechanism 1 is SHA-256, 2 is SHA-512."""

    name: String = on("0+", default="")
    mechanism: Int8 = on("0+", default=0)
    salt: Bytes = on("0+", default=b"")
    stored_key: Bytes = on("0+", default=b"")
    server_key: Bytes = on("0+", default=b"")
    iterations: Int32 = on("0+", default=0)


@wire(versions="0", flexible="0+")
class AccessControlEntryRecord:
    """An ACL."""

    id: Uuid = on("0+", default=NO_UUID)
    resource_type: Int8 = on("0+", default=0)
    resource_name: String = on("0+", default="")
    pattern_type: Int8 = on("0+", default=0)
    principal: String = on("0+", default="")
    host: String = on("0+", default="")
    operation: Int8 = on("0+", default=0)
    permission_type: Int8 = on("0+", default=0)


@wire(versions="0", flexible="0+")
class RemoveAccessControlEntryRecord:
    """The removal of an ACL."""

    id: Uuid = on("0+", default=NO_UUID)


@wire(versions="0", flexible="0+")
class RemoveUserScramCredentialRecord:
    """The removal of a user's SCRAM credential."""

    name: String = on("0+", default="")
    mechanism: Int8 = on("0+", default=0)


@wire(versions="0", flexible="0+")
class RemoveDelegationTokenRecord:
    """The removal of a delegation token."""

    token_id: String = on("0+", default="")
