"""SCRAM credentials in the metadata: AlterUserScramCredentials (key 51), DescribeUserScramCredentials (key 50).

Rules:
- The client sends the salted password; only the two keys derived from it are stored.
- A user may appear once in a request; a duplicate fails and its credentials stay unchanged.

KIP: 554.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Generator
from typing import Any

from ottla.controller.decision import Decision
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.metadata.feature import SCRAM_FROM
from ottla.metadata.image import Image
from ottla.wire.api import alter_user_scram_credentials as alter
from ottla.wire.api import describe_user_scram_credentials as describe
from ottla.wire.record.security import RemoveUserScramCredentialRecord, UserScramCredentialRecord

#: Mechanism -> its hash: SCRAM-SHA-256 and SCRAM-SHA-512.
_HASHES = {1: "sha256", 2: "sha512"}
#: As in Kafka.
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384
#: About a millisecond.
USERS_PER_STEP = 250


def alter_user_scram_credentials(image: Image, request: alter.AlterUserScramCredentialsRequest) -> Decision:
    """Delete and set credentials, user by user."""
    records: dict[str, Any] = {}
    errors: dict[str, KafkaError] = {}
    changes: list[alter.ScramCredentialDeletion | alter.ScramCredentialUpsertion]
    changes = [*request.deletions, *request.upsertions]
    for change in changes:
        user = change.name
        if user in errors:
            continue
        try:
            if records.pop(user, None) is not None:
                why = "A user credential cannot be altered twice in the same request"
                raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, why)
            if image.metadata_version < SCRAM_FROM:
                why = "The current metadata.version does not support SCRAM"
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, why)
            if isinstance(change, alter.ScramCredentialDeletion):
                records[user] = _deleted(image, change)
            else:
                records[user] = _set(change)
        except KafkaError as error:
            errors[user] = error
    results = [alter.AlterUserScramCredentialsResult(user=user, error_message=None) for user in records]
    results += [
        alter.AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=error.message)
        for user, error in errors.items()
    ]
    return Decision(list(records.values()), alter.AlterUserScramCredentialsResponse(results=results))


def _deleted(image: Image, deletion: alter.ScramCredentialDeletion) -> RemoveUserScramCredentialRecord:
    _check(deletion.name, deletion.mechanism)
    if (deletion.name, deletion.mechanism) not in image.scram:
        why = "Attempt to delete a user credential that does not exist"
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, why)
    return RemoveUserScramCredentialRecord(name=deletion.name, mechanism=deletion.mechanism)


def _set(upsertion: alter.ScramCredentialUpsertion) -> UserScramCredentialRecord:
    _check(upsertion.name, upsertion.mechanism)
    if not ITERATIONS_MIN <= upsertion.iterations <= ITERATIONS_MAX:
        few = upsertion.iterations < ITERATIONS_MIN
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too {'few' if few else 'many'} iterations")
    return credential_record(
        upsertion.name,
        upsertion.mechanism,
        bytes(upsertion.salt),
        bytes(upsertion.salted_password),
        upsertion.iterations,
    )


def credential_record(
    user: str, mechanism: int, salt: bytes, salted_password: bytes, iterations: int
) -> UserScramCredentialRecord:
    """Derive the stored keys of a credential."""
    name = _HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    return UserScramCredentialRecord(
        name=user,
        mechanism=mechanism,
        salt=salt,
        stored_key=hashlib.new(name, client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", name),
        iterations=iterations,
    )


def _check(user: str, mechanism: int) -> None:
    if not user:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if mechanism not in _HASHES:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")


def describe_user_scram_credentials(
    image: Image, request: describe.DescribeUserScramCredentialsRequest
) -> Generator[None, None, describe.DescribeUserScramCredentialsResponse]:
    """Return the mechanisms and iterations of the requested users, or of all; neither keys nor salts. In steps."""
    users = [entry.name for entry in request.users or ()] or sorted({user for user, _ in image.scram})
    results = []
    for number, (user, times) in enumerate(Counter(users).items(), 1):
        if not number % USERS_PER_STEP:
            yield
        result = describe.DescribeUserScramCredentialsResult(user=user)
        mechanisms = [mechanism for mechanism in _HASHES if (user, mechanism) in image.scram]
        if request.users and times > 1:
            result.error_code = ErrorCode.DUPLICATE_RESOURCE
            result.error_message = (
                f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
            )
        elif not mechanisms:
            result.error_code = ErrorCode.RESOURCE_NOT_FOUND
            result.error_message = f"Attempt to describe a user credential that does not exist: {user}"
        else:
            result.credential_infos = [
                describe.CredentialInfo(mechanism=mechanism, iterations=image.scram[user, mechanism].iterations)
                for mechanism in mechanisms
            ]
        results.append(result)
    return describe.DescribeUserScramCredentialsResponse(results=results)
