"""The server's half of PLAIN and SCRAM, against the client's half and against clients that mean no good."""

import base64
import contextlib
import hashlib
import string
from collections.abc import Generator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.scram import credential_record
from ottla.kernel.error import OttlaError
from ottla.security.jaas import parse_jaas
from ottla.security.sasl import plain
from ottla.security.scram import ScramRefused, scram
from ottla.security.verify import KeptToken, SignInRefused, Verified, verify_plain, verify_scram
from ottla.wire.record.security import UserScramCredentialRecord

USERS = {"ann": "secret", "b=o,b": "p,a=s's", "emil": ""}
MECHANISMS = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}


def meet(client: Generator[bytes, bytes, None], server: Generator[bytes, bytes, Verified]) -> Verified:
    """Have both talk until the server is done; the client must then believe it."""
    next(server)
    token = next(client)
    while True:
        try:
            token = client.send(server.send(token))
        except StopIteration as done:
            if done.value is None:
                raise AssertionError("the client ended before the server") from None
            with pytest.raises(StopIteration):
                client.send(done.value.last)
            found: Verified = done.value
            return found


def credential(mechanism: str, user: str, password: str, iterations: int = 4096) -> UserScramCredentialRecord:
    number, digest = MECHANISMS[mechanism]
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), b"salt", iterations)
    return credential_record(user, number, b"salt", salted, iterations)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", ["ann", "b=o,b"])
def test_the_right_password_lets_in_by_scram(mechanism: str, user: str) -> None:
    known = {user: credential(mechanism, user, USERS[user])}
    found = meet(scram(mechanism, user, USERS[user], "theirs"), verify_scram(mechanism, known.get, "ours"))
    assert found.user == user


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_or_user_is_refused_by_scram_without_words(mechanism: str) -> None:
    known = {"ann": credential(mechanism, "ann", "secret"), "few": credential(mechanism, "few", "secret", 4095)}
    for user, password in (("ann", "wrong"), ("bob", "secret"), ("few", "secret")):
        with pytest.raises(SignInRefused) as error:
            meet(scram(mechanism, user, password, "theirs"), verify_scram(mechanism, known.get, "ours"))
        assert error.value.told is None


def test_a_proof_for_another_nonce_channel_or_length_is_refused() -> None:
    known = {"ann": credential("SCRAM-SHA-256", "ann", "secret")}

    def bent(old: str, new: str) -> None:
        server = verify_scram("SCRAM-SHA-256", known.get, "ours")
        client = scram("SCRAM-SHA-256", "ann", "secret", "theirs")
        next(server)
        final = client.send(server.send(next(client)))
        assert old in final.decode()
        with pytest.raises(SignInRefused):
            server.send(final.decode().replace(old, new).encode())

    bent("r=theirsours", "r=theirsother")
    bent("r=theirsours", "r=ours")
    bent("c=biws", "c=eSws")
    bent("p=", "p=AAAA")
    # No base64: too short by a character, and padded in the middle.
    bent("c=biws", "c=biw")
    bent("p=", "p=A")
    bent("p=", "p=A===")
    bent("p=", "q=")


def test_a_header_that_was_changed_on_its_way_is_refused() -> None:
    """The proof covers the header in `c=` alone, so the server compares that with the one that came (RFC 5802, 5.1)."""
    known = {"ann": credential("SCRAM-SHA-256", "ann", "secret")}
    for header, fine in (("n,,", True), ("n,a=ann,", False)):
        server = verify_scram("SCRAM-SHA-256", known.get, "ours")
        client = scram("SCRAM-SHA-256", "ann", "secret", "theirs")
        next(server)
        first = next(client).decode()
        final = client.send(server.send(first.replace("n,,", header, 1).encode()))
        with pytest.raises(StopIteration if fine else SignInRefused):
            server.send(final)


@pytest.mark.parametrize("header", ["y,,", "p=tls-unique,,", "p=tls-server-end-point,,"])
def test_a_client_that_speaks_of_channel_binding_is_refused_at_its_first_message(header: str) -> None:
    """As in Apache Kafka, which knows the header `n` alone."""
    known = {"ann": credential("SCRAM-SHA-256", "ann", "secret")}
    server = verify_scram("SCRAM-SHA-256", known.get, "ours")
    next(server)
    with pytest.raises(SignInRefused):
        server.send(f"{header}n=ann,r=x".encode())


def test_an_authorization_id_must_be_the_users_own() -> None:
    known = {"ann": credential("SCRAM-SHA-256", "ann", "secret")}
    for authzid, fine in (("ann", True), ("bob", False)):
        server = verify_scram("SCRAM-SHA-256", known.get, "ours")
        next(server)
        if fine:
            assert server.send(f"n,a={authzid},n=ann,r=x".encode()).startswith(b"r=xours")
        else:
            with pytest.raises(SignInRefused, match="authorization id that is different"):
                server.send(f"n,a={authzid},n=ann,r=x".encode())


def test_a_tokens_password_is_not_taken_for_a_users() -> None:
    known = {"ann": credential("SCRAM-SHA-256", "ann", "secret")}
    with pytest.raises(SignInRefused):
        meet(
            scram("SCRAM-SHA-256", "ann", "secret", "theirs", "tokenauth=true"),
            verify_scram("SCRAM-SHA-256", known.get, "ours"),
        )


@pytest.mark.parametrize("user", ["=2C", "=3D", "=2C=3D,", "=", ",", "a=2c"])
def test_a_name_is_written_in_sasls_way_and_read_back(user: str) -> None:
    known = {user: credential("SCRAM-SHA-256", user, "secret")}
    found = meet(scram("SCRAM-SHA-256", user, "secret", "theirs"), verify_scram("SCRAM-SHA-256", known.get, "ours"))
    assert found.user == user


@pytest.mark.parametrize(
    ("extensions", "by_token"),
    [
        ("", False),
        ("tokenauth=true", True),
        ("tokenauth=TRUE", True),
        ("other=1,tokenauth=True", True),
        ("tokenauth=true,other=1", True),
        ("tokenauth=false", False),
        ("tokenauth=yes", False),
        ("TokenAuth=true", False),
        ("xtokenauth=true", False),
        ("tokenauth=true,tokenauth=false", False),
        ("tokenauth=false,tokenauth=true", True),
    ],
)
def test_a_login_by_a_token_is_its_owners_until_the_token_ends(extensions: str, by_token: bool) -> None:
    """As in Kafka's ScramExtensions: the name as it is, its value in any letters, and the last one counts."""
    users = {"ID": credential("SCRAM-SHA-256", "ID", "secret")}
    token = KeptToken(credential("SCRAM-SHA-256", "ID", "hmac"), "ann", 5_000)
    server = verify_scram("SCRAM-SHA-256", users.get, "ours", lambda token_id: token if token_id == "ID" else None)
    client = scram("SCRAM-SHA-256", "ID", "hmac" if by_token else "secret", "theirs", extensions)
    found = meet(client, server)
    assert found._replace(last=b"") == (Verified("ann", b"", 5_000, True) if by_token else Verified("ID", b""))


def test_plain_lets_in_by_name_and_password() -> None:
    for user in ("ann", "b=o,b"):
        assert meet(plain(user, USERS[user]), verify_plain(USERS)) == Verified(user, b"")


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (b"\0ann\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0secret", "Authentication failed: Invalid username or password"),
        (b"\0ann\0", "Authentication failed: password not specified"),
        (b"\0emil\0", "Authentication failed: password not specified"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"bob\0ann\0secret", "Client requested an authorization id that is different from username"),
        (b"ann\0secret", None),
        (b"\0ann\0secret\0more", None),
        (b"", None),
        (b"\xff\xfe", None),
    ],
)
def test_plain_refuses_with_kafkas_words(message: bytes, told: str | None) -> None:
    server = verify_plain(USERS)
    next(server)
    with pytest.raises(SignInRefused) as error:
        server.send(message)
    assert (error.value.told is None) if told is None else (told in str(error.value.told))


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_bytes_end_in_a_refusal_or_a_challenge(first: bytes, second: bytes) -> None:
    known = {"ann": credential("SCRAM-SHA-256", "ann", "secret")}
    for server in (verify_plain(USERS), verify_scram("SCRAM-SHA-256", known.get, "ours")):
        next(server)
        with pytest.raises(SignInRefused):
            server.send(first)
    server = verify_scram("SCRAM-SHA-256", known.get, "ours")
    next(server)
    assert server.send(b"n,,n=ann,r=x").startswith(b"r=xours,s=")
    with pytest.raises(SignInRefused):
        server.send(second)


def test_the_client_finds_out_a_server_that_does_not_know_the_password() -> None:
    known = credential("SCRAM-SHA-256", "ann", "secret")
    server = verify_scram("SCRAM-SHA-256", {"ann": known}.get, "ours")
    client = scram("SCRAM-SHA-256", "ann", "secret", "theirs")
    next(server)
    with pytest.raises(StopIteration) as done:
        server.send(client.send(server.send(next(client))))
    wrong = bytes(32)
    assert done.value.value.last != b"v=" + base64.b64encode(wrong)
    with pytest.raises(ScramRefused):
        client.send(b"v=" + base64.b64encode(wrong))


# ---- JAAS


def test_jaas_lines_are_read_as_java_does() -> None:
    text = r"""
    // users
    org.apache.kafka.common.security.plain.PlainLoginModule REQUIRED /* the
       flag */ username="br\"o\\ker" password='p=;s' serviceName=kafka
       user_ann="a;b" user_b.o-b="c" ; """
    module, options = parse_jaas("x", text)
    assert module.endswith("PlainLoginModule")
    assert options["username"] == 'br"o\\ker'
    assert options["password"] == "p=;s"
    assert options["serviceName"] == "kafka"
    assert parse_jaas("x", text).users == {"ann": "a;b", "b.o-b": "c"}


def test_quoted_values_of_a_jaas_line_are_read_with_javas_escapes() -> None:
    line = r"""M required a="1\t2\n3\r4" b="\q\"\\" c='\t"' d="=;{}";"""
    _, options = parse_jaas("x", line)
    assert options == {"a": "1\t2\n3\r4", "b": 'q"\\', "c": '\t"', "d": "=;{}"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "MODULE required"),
        ("Module;", "MODULE required"),
        ("Module maybe a=b;", "MODULE required"),
        ('Module required a="b"', "semicolon"),
        ('Module required a="topsecret', "quote"),
        ("Module required a b;", "NAME="),
        ("Module required a=;", "NAME="),
        ("A required; B required;", "more than one"),
        ("A required; B", "more than one"),
        ("A required; ;", "more than one"),
        ("A required a=b c;", "NAME="),
        ("A required a=b c=", "NAME="),
    ],
)
def test_a_wrong_jaas_line_is_refused_in_one_line_without_its_secrets(text: str, words: str) -> None:
    with pytest.raises(OttlaError, match=f"^listener.x: .*{words}") as error:
        parse_jaas("listener.x", text)
    assert "topsecret" not in str(error.value)


@given(st.text(alphabet=string.printable, max_size=60))
def test_any_text_is_an_entry_or_an_error(text: str) -> None:
    with contextlib.suppress(OttlaError):
        assert parse_jaas("x", text).module
