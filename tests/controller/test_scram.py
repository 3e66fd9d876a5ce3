"""AlterUserScramCredentials and DescribeUserScramCredentials."""

import base64
import hashlib
import hmac

import pytest

from ottla.controller.scram import describe_user_scram_credentials
from ottla.kernel.error import ErrorCode
from ottla.wire.api import alter_user_scram_credentials as alter
from ottla.wire.api import describe_user_scram_credentials as describe
from tests.controller.scene import Cluster, ended

SHA_256, SHA_512 = 1, 2


def credential(user: str, mechanism: int = SHA_256, iterations: int = 4096) -> alter.ScramCredentialUpsertion:
    # RFC 7677's example: user "user", password "pencil".
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, iterations)
    return alter.ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted
    )


def change(
    cluster: Cluster, *upsertions: alter.ScramCredentialUpsertion, delete: tuple[tuple[str, int], ...] = ()
) -> dict[str, str]:
    deletions = [alter.ScramCredentialDeletion(name=user, mechanism=mechanism) for user, mechanism in delete]
    request = alter.AlterUserScramCredentialsRequest(deletions=deletions, upsertions=list(upsertions))
    return {each.user: ErrorCode(each.error_code).name for each in cluster.ask(request).results}


def described(cluster: Cluster, *users: str) -> dict[str, list[tuple[int, int]] | str]:
    request = describe.DescribeUserScramCredentialsRequest(users=[describe.UserName(name=user) for user in users])
    return {
        each.user: ErrorCode(each.error_code).name
        if each.error_code
        else [(one.mechanism, one.iterations) for one in each.credential_infos]
        for each in ended(describe_user_scram_credentials(cluster.image, request)).results
    }


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_the_keys_are_those_of_the_rfc_and_the_password_is_not_kept(cluster: Cluster) -> None:
    assert change(cluster, credential("user")) == {"user": "NONE"}
    record = cluster.image.scram["user", SHA_256]
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", record.salt, 4096)
    # What RFC 7677's exchange proves: the server's signature of its messages under the server key.
    message = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    signature = base64.b64encode(hmac.digest(record.server_key, message, "sha256"))
    assert signature == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert salted not in (record.stored_key, record.server_key)


def test_a_user_may_have_both_mechanisms(cluster: Cluster) -> None:
    change(cluster, credential("ann"))
    change(cluster, credential("ann", SHA_512, 8192))
    assert described(cluster, "ann") == {"ann": [(SHA_256, 4096), (SHA_512, 8192)]}
    assert change(cluster, delete=(("ann", SHA_256),)) == {"ann": "NONE"}
    assert described(cluster) == {"ann": [(SHA_512, 8192)]}


def test_a_user_who_appears_twice_stays_as_it_was(cluster: Cluster) -> None:
    assert change(cluster, credential("ann"), credential("ann", SHA_512)) == {"ann": "DUPLICATE_RESOURCE"}
    assert described(cluster, "ann") == {"ann": "RESOURCE_NOT_FOUND"}
    assert described(cluster, "ann", "ann") == {"ann": "DUPLICATE_RESOURCE"}


@pytest.mark.parametrize(
    ("one", "code"),
    [
        (credential(""), "UNACCEPTABLE_CREDENTIAL"),
        (credential("ann", 3), "UNSUPPORTED_SASL_MECHANISM"),
        (credential("ann", iterations=4095), "UNACCEPTABLE_CREDENTIAL"),
        (credential("ann", iterations=16385), "UNACCEPTABLE_CREDENTIAL"),
    ],
)
def test_a_bad_credential_is_refused(cluster: Cluster, one: alter.ScramCredentialUpsertion, code: str) -> None:
    assert change(cluster, one) == {one.name: code}
    assert not cluster.image.scram


def test_what_is_not_there_cannot_be_deleted(cluster: Cluster) -> None:
    assert change(cluster, delete=(("ann", SHA_256),)) == {"ann": "RESOURCE_NOT_FOUND"}


def test_levels_before_3_5_know_no_credentials() -> None:
    cluster = Cluster(features={"metadata.version": 10})
    assert change(cluster, credential("user"), delete=(("other", SHA_256),)) == {
        "user": "UNSUPPORTED_VERSION",
        "other": "UNSUPPORTED_VERSION",
    }
    assert not cluster.image.scram
    assert change(Cluster(features={"metadata.version": 11}), credential("user")) == {"user": "NONE"}


def test_a_user_of_three_changes_is_told_once_and_the_others_are_made(cluster: Cluster) -> None:
    change(cluster, credential("ann", SHA_512))
    told = change(
        cluster, credential("ann"), credential("bob"), credential("ann", SHA_512, 8192), delete=(("ann", SHA_512),)
    )
    assert told == {"ann": "DUPLICATE_RESOURCE", "bob": "NONE"}
    assert described(cluster) == {"ann": [(SHA_512, 4096)], "bob": [(SHA_256, 4096)]}


def test_a_credential_is_kept_as_it_was_sent(cluster: Cluster) -> None:
    one = credential("ann", SHA_512, 5000)
    change(cluster, one)
    record = cluster.image.scram["ann", SHA_512]
    assert (record.salt, record.iterations) == (one.salt, 5000)
    client_key = hmac.digest(bytes(one.salted_password), b"Client Key", "sha512")
    assert record.stored_key == hashlib.sha512(client_key).digest()
    assert record.server_key == hmac.digest(bytes(one.salted_password), b"Server Key", "sha512")


def test_a_user_that_is_not_there_is_said_beside_those_that_are(cluster: Cluster) -> None:
    change(cluster, credential("ann"))
    assert described(cluster, "bob", "ann") == {"bob": "RESOURCE_NOT_FOUND", "ann": [(SHA_256, 4096)]}
    assert change(cluster, delete=(("ann", SHA_512), ("", SHA_256), ("bob", 9))) == {
        "ann": "RESOURCE_NOT_FOUND",
        "": "UNACCEPTABLE_CREDENTIAL",
        "bob": "UNSUPPORTED_SASL_MECHANISM",
    }
