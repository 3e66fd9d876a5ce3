"""What the client says when it signs in, and which settings of security it takes. Without sockets."""

import asyncio
import base64
import ssl
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from ottla.kernel.client_error import AuthenticationFailed, NotReachable
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.security.oauth import TokenRequest
from ottla.security.sasl import SignIn, bearer, plain
from ottla.security.scram import ScramRefused, scram
from ottla.security.sign_in import authenticate
from ottla.security.tls import context
from ottla.settings.client.client import ClientSettings
from ottla.settings.client.security import SecuritySettings
from ottla.wire.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.wire.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.client import certificate
from tests.client.certificate import Certificates

_CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
# RFC 7677, section 3.
_NONCE = "rOprNGfwEbeRWgbNEkqO"
_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_scram_says_what_rfc_7677_says() -> None:
    exchange = scram("SCRAM-SHA-256", "user", "pencil", _NONCE)
    assert next(exchange) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert exchange.send(_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    with pytest.raises(StopIteration):
        exchange.send(_FINAL)


def test_scram_with_sha_512_agrees_with_a_server_that_follows_rfc_5802() -> None:
    exchange = scram("SCRAM-SHA-512", "a,b=c", "päss", "nonce", "tokenauth=true")
    first = next(exchange)
    assert first == b"n,,n=a=2Cb=3Dc,r=nonce,tokenauth=true"
    challenge, check = _server("sha512", "päss", first[3:], b"r=nonce123,s=c2FsdA==,i=4096")
    signature = check(exchange.send(challenge))
    with pytest.raises(StopIteration):
        exchange.send(b"v=" + base64.b64encode(signature))


def _server(digest: str, password: str, bare: bytes, challenge: bytes) -> Any:
    import hashlib
    import hmac

    salted = hashlib.pbkdf2_hmac(digest, password.encode(), b"salt", 4096)
    stored = hashlib.new(digest, hmac.digest(salted, b"Client Key", digest)).digest()

    def check(final: bytes) -> bytes:
        without, _, proof = final.partition(b",p=")
        message = b",".join((bare, challenge, without))
        mask = hmac.digest(stored, message, digest)
        key = bytes(one ^ other for one, other in zip(base64.b64decode(proof), mask, strict=True))
        assert hashlib.new(digest, key).digest() == stored
        return hmac.digest(hmac.digest(salted, b"Server Key", digest), message, digest)

    return challenge, check


@pytest.mark.parametrize(
    ("challenge", "why"),
    [
        (b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (b"r=" + _NONCE.encode() + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (_FIRST.replace(b"4096", b"4095"), "4095 iterations"),
        (_FIRST.replace(b"4096", b"99999999999"), "iterations"),
        (_FIRST.replace(b"4096", b"many"), "many iterations"),
        (_FIRST.replace(b"W22Z", b"!!!!"), "not SCRAM"),
        (b"e=other-error", "not SCRAM"),
        (b"\xff\xfe", "no text"),
        (b"", "not SCRAM"),
    ],
)
def test_a_first_message_that_scram_does_not_allow_ends_the_sign_in(challenge: bytes, why: str) -> None:
    exchange = scram("SCRAM-SHA-256", "user", "pencil", _NONCE)
    next(exchange)
    with pytest.raises(ScramRefused, match=why):
        exchange.send(challenge)


@pytest.mark.parametrize(
    ("final", "why"),
    [
        (b"v=" + base64.b64encode(bytes(32)), "does not know the password"),
        (b"e=invalid-proof", "invalid-proof"),
        (b"x", "not SCRAM"),
    ],
)
def test_a_broker_that_does_not_know_the_password_is_not_believed(final: bytes, why: str) -> None:
    exchange = scram("SCRAM-SHA-256", "user", "pencil", _NONCE)
    next(exchange)
    exchange.send(_FIRST)
    with pytest.raises(ScramRefused, match=why):
        exchange.send(final)


def test_plain_and_bearer_say_what_their_rfcs_say() -> None:
    assert list(plain("ann", "päss")) == ["\0ann\0päss".encode()]
    exchange = bearer("abc", {"team": "data"})
    assert next(exchange) == b"n,,\x01team=data\x01auth=Bearer abc\x01\x01"
    with pytest.raises(StopIteration):
        exchange.send(b"")
    exchange = bearer("abc", {})
    assert next(exchange) == b"n,,\x01auth=Bearer abc\x01\x01"
    assert exchange.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(ScramRefused, match="invalid_token"):
        exchange.send(b"")


def _read(**keywords: object) -> SecuritySettings:
    return ClientSettings.read("127.0.0.1:9092", keywords)


def test_a_token_is_asked_for_again_when_most_of_its_life_is_over() -> None:
    given: list[float] = []

    async def token() -> tuple[str, float]:
        given.append(time.time())
        return f"token-{len(given)}", time.time() + (0.0 if len(given) == 1 else 3600)

    settings = _read(security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token=token)

    async def three() -> list[bytes]:
        sign_in = SignIn(settings)
        return [next(await sign_in.exchange("broker")) for _ in range(3)]

    said = asyncio.run(three())
    assert [b"token-1" in said[0], b"token-2" in said[1], b"token-2" in said[2]] == [True] * 3


def test_a_token_function_that_raises_is_tried_again_like_a_token_endpoint_that_is_away() -> None:
    """Its exception ended heartbeats, and connections were tried again without a pause."""

    async def away() -> str:
        raise ConnectionResetError("the provider is away")

    def refuses() -> str:
        raise AuthenticationFailed("the provider refuses")

    for token, kind in ((away, NotReachable), (refuses, AuthenticationFailed)):
        settings = _read(security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token=token)
        with pytest.raises(kind, match="the provider"):
            asyncio.run(SignIn(settings).exchange("broker"))


def test_a_token_function_that_blocks_stops_nothing_else_and_is_asked_once_for_all_connections() -> None:
    """It ran on the loop: the heartbeats stopped, and the member was removed from its group."""
    may_end = threading.Event()
    calls: list[threading.Thread] = []

    async def connections() -> list[bytes]:
        loop, began = asyncio.get_running_loop(), asyncio.Event()

        def blocks() -> tuple[str, float]:
            calls.append(threading.current_thread())
            loop.call_soon_threadsafe(began.set)
            assert may_end.wait(10), "the loop went on meanwhile"
            return "token", time.time() + 3600

        sign_in = SignIn(
            _read(security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token=blocks)
        )
        impatient = asyncio.create_task(sign_in.exchange("broker"))
        patient = [asyncio.create_task(sign_in.exchange("broker")) for _ in range(2)]
        await began.wait()
        impatient.cancel()
        await asyncio.gather(impatient, return_exceptions=True)
        patient.append(asyncio.create_task(sign_in.exchange("broker")))
        await asyncio.sleep(0)
        may_end.set()
        return [next(each) for each in await asyncio.gather(*patient)]

    assert all(b"token" in each for each in asyncio.run(connections()))
    assert len(calls) == 1 and calls[0] is not threading.current_thread()


def test_what_a_broker_answers_becomes_an_error_that_says_what_to_do() -> None:
    settings = _read(security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_username="ann", sasl_password="p")

    async def sign_in(*answers: object) -> tuple[int, list[object]]:
        asked: list[object] = []
        left = iter(answers)

        async def ask(request: object) -> object:
            asked.append(request)
            return next(left)

        return await authenticate(ask, SignIn(settings), "broker", 1), asked

    hello = SaslHandshakeResponse(mechanisms=["PLAIN"])
    lifetime, asked = asyncio.run(sign_in(hello, SaslAuthenticateResponse(session_lifetime_ms=5000)))
    assert lifetime == 5000
    assert [type(one) for one in asked] == [SaslHandshakeRequest, SaslAuthenticateRequest]
    unknown = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=["GSSAPI"])
    with pytest.raises(AuthenticationFailed, match="it offers GSSAPI"):
        asyncio.run(sign_in(unknown))
    with pytest.raises(AuthenticationFailed, match=r"security\.protocol"):
        asyncio.run(sign_in(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)))
    refused = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="go away")
    with pytest.raises(AuthenticationFailed, match="go away"):
        asyncio.run(sign_in(hello, refused))
    # A program hears of a failed authentication, which is not retried; of other errors it would hear nothing.
    with pytest.raises(AuthenticationFailed, match="ILLEGAL_SASL_STATE"):
        asyncio.run(sign_in(hello, SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)))
    with pytest.raises(KafkaError) as raised:
        asyncio.run(sign_in(hello, SaslAuthenticateResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)))
    assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"security_protocol": "SASL_SSL"}, r"needs sasl\.mechanism"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "NTLM"}, "OAUTHBEARER, GSSAPI"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, r"sasl\.username"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}, r"sasl\.oauthbearer\.token"),
        ({"sasl_username": "ann"}, "no effect with security.protocol=PLAINTEXT"),
        ({"security_protocol": "SASL_PLAINTEXT", "ssl_ca_location": "/ca"}, "no effect"),
        ({"security_protocol": "SSL", "ssl_truststore_type": "JKS"}, r"needs ssl\.truststore\.location"),
        ({"security_protocol": "SSL", "ssl_truststore_type": "BKS"}, "one of PEM, PKCS12, JKS"),
        ({"security_protocol": "SSL", "ssl_keystore_password": "x", "ssl_keystore_location": "y"}, "no effect with"),
        (
            {"security_protocol": "SSL", "ssl_ca_location": "a", "ssl_truststore_location": "b"},
            "are alternatives: remove one",
        ),
        ({"security_protocol": "SSL", "ssl_keystore_key": "a"}, "must be set together"),
        ({"security_protocol": "SSL", "ssl_truststore_locatoin": "a"}, r"did you mean ssl\.truststore\.location"),
        ({"security_protocol": "SSL", "ssl_enabled_protocols": "TLSv1.1"}, "some of TLSv1.2"),
        (
            {"security_protocol": "SSL", "ssl_context": ssl.create_default_context(), "ssl_ca_location": "a"},
            "replaces all",
        ),
        ({"security_protocol": "SASLSSL"}, "one of PLAINTEXT"),
    ],
)
def test_settings_that_do_not_protect_as_they_look_are_refused(given: dict[str, object], why: str) -> None:
    with pytest.raises(OttlaError, match=why):
        _read(**given)


def test_user_and_password_come_from_javas_words_too() -> None:
    jaas = 'o.a.k.ScramLoginModule required username="a\\"nn" password="p\\\\w" tokenauth="true";'
    settings = _read(security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=jaas)
    assert settings.user == ('a"nn', "p\\w", True)
    settings = _read(security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_jaas_config=jaas, sasl_username="bob")
    assert settings.user[:2] == ("bob", "p\\w")


def test_secrets_stand_in_no_representation_of_the_settings() -> None:
    settings = _read(
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_username="ann",
        sasl_password="hidden",
        sasl_jaas_config='x required password="hidden";',
        ssl_key_password="hidden",
        ssl_keystore_key="hidden",
        ssl_keystore_certificate_chain="shown",
    )
    assert "hidden" not in repr(settings)
    assert "ann" in repr(settings)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificate.make(tmp_path_factory.mktemp("certificates"))


def test_certificates_and_keys_are_read_from_files_and_from_text(files: Certificates) -> None:
    both = files.client.read_text()
    end = both.index("-----BEGIN CERTIFICATE")
    for given in (
        {"ssl_ca_location": str(files.ca)},
        {"ssl_truststore_certificates": files.ca.read_text(), "ssl_keystore_location": str(files.client)},
        {"ssl_keystore_key": both[:end], "ssl_keystore_certificate_chain": both[end:]},
        {
            "ssl_key_location": str(files.client_key),
            "ssl_certificate_location": str(files.client_certificate),
            "ssl_key_password": files.key_password,
        },
    ):
        made = context(_read(security_protocol="SSL", **given))
        assert made.check_hostname and made.verify_mode is ssl.CERT_REQUIRED
    made = context(
        _read(security_protocol="SSL", ssl_endpoint_identification_algorithm="", ssl_enabled_protocols="TLSv1.3")
    )
    assert not made.check_hostname and made.verify_mode is ssl.CERT_REQUIRED
    assert made.minimum_version is ssl.TLSVersion.TLSv1_3


def test_a_ca_without_key_usage_is_trusted_on_every_python(files: Certificates) -> None:
    """As Java does; Python 3.13 asks for more by default."""
    given: tuple[dict[str, object], ...] = ({}, {"ssl_ca_location": str(files.ca)})
    for settings in given:
        made = context(_read(security_protocol="SSL", **settings))
        assert not made.verify_flags & ssl.VERIFY_X509_STRICT
        assert made.verify_mode is ssl.CERT_REQUIRED


def test_a_certificate_is_trusted_without_its_ca_on_every_python(files: Certificates) -> None:
    """As Java does; below Python 3.13 the default wants the whole chain."""
    client = context(_read(security_protocol="SSL", ssl_ca_location=str(files.broker.with_suffix(".crt"))))
    node = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    node.load_cert_chain(files.broker)
    sent, received = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(received, sent, server_hostname="127.0.0.1"),
        node.wrap_bio(sent, received, server_side=True),
    )
    for _ in range(3):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    assert ends[0].version() is not None
    assert ends[0].getpeercert()


def test_files_that_cannot_be_used_are_named(files: Certificates, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("nothing")
    for given, why in (
        ({"ssl_ca_location": str(tmp_path / "gone.pem")}, "there is no file"),
        ({"ssl_ca_location": str(nothing)}, "not certificates in PEM"),
        ({"ssl_keystore_location": str(nothing)}, "cannot be used"),
        ({"ssl_keystore_location": str(tmp_path / "gone.pem")}, "there is no file"),
        (
            {"ssl_key_location": str(files.client_key), "ssl_certificate_location": str(files.client_certificate)},
            r"ssl\.key\.password",
        ),
    ):
        with pytest.raises(OttlaError, match=why):
            context(_read(security_protocol="SSL", **given))


def test_frames_are_cut_the_same_however_they_come() -> None:
    from ottla.net.answer_frames import AnswerFrames
    from ottla.wire.type import Malformed

    bodies = [b"abcd", b"x" * 100_000, b"efgh" * 5, b"y" * 40_000, b"z" * 4]
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    for size in (1, 7, 4096, len(stream)):
        frames, found, position = AnswerFrames(), [], 0
        while position < len(stream):
            room = frames.room()
            part = stream[position : position + min(size, len(room))]
            room[: len(part)] = part
            found += [bytes(one) for one in frames.filled(len(part))]
            position += len(part)
        assert found == bodies
    for start, why in (
        (b"HTTP", "is it a Kafka broker"),
        (b"\x15\x03\x03\x00", "speaks TLS"),
        (bytes(4), "of 0 bytes"),
    ):
        frames = AnswerFrames()
        frames.room()[:4] = start
        with pytest.raises(Malformed, match=why):
            frames.filled(4)


def test_protocols_bound_the_version_from_both_sides() -> None:
    for names, least, most in (
        ("TLSv1.2", ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2),
        ("TLSv1.3", ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3),
        ("TLSv1.3,TLSv1.2", ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3),
    ):
        made = context(_read(security_protocol="SSL", ssl_enabled_protocols=names))
        assert (made.minimum_version, made.maximum_version) == (least, most)


def test_an_id_and_a_secret_of_any_characters_reach_the_token_endpoint() -> None:
    """RFC 6749, 2.3.1: each is form-encoded before the two are joined by a colon."""
    said: list[str] = []

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            said.append(self.headers["Authorization"])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"access_token": "t"}')

        def log_message(self, format: str, *args: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        settings = _read(
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token_endpoint_url=f"http://127.0.0.1:{server.server_port}/token",
            sasl_oauthbearer_client_credentials_client_id="a:b c",
            sasl_oauthbearer_client_credentials_client_secret="ä%",
        )
        assert TokenRequest(settings, {}, ssl.create_default_context, for_node=False).fetch() == ("t", 0.0)
        thread.join()
    assert base64.b64decode(said[0].removeprefix("Basic ")) == b"a%3Ab+c:%C3%A4%25"
