"""A connection that speaks TLS to a peer: whom it trusts, what it tells, and that it reads all it has decrypted."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path

import pytest

from ottla.wire.api import ApiKey
from ottla.wire.api.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.api.list_groups import ListGroupsResponse
from ottla.wire.compile import encode
from ottla.wire.header import ResponseHeader, response_header_version
from tests.client import certificate
from tests.client.certificate import Certificates
from tests.net.test_outbound import FarEnd, Told, ask, versions
from tests.net.test_secured_sign_in import Login, outbound, refused


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificate.make(tmp_path_factory.mktemp("certificates"))


class TlsEnd:
    """The far end's TLS over its socket, turned with the loop."""

    def __init__(self, far: FarEnd, pem: Path) -> None:
        self.far = far
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=True)
        self._got = bytearray()

    def move(self) -> None:
        assert self.far.sock is not None
        if self.outgoing.pending:
            self.far.sock.setblocking(True)
            self.far.sock.sendall(self.outgoing.read())
            self.far.sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            data = self.far.sock.recv(1 << 16)
            if data:
                self.incoming.write(data)
            else:
                self.incoming.write_eof()

    def shake(self) -> None:
        def done() -> bool:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.move()
                return False
            self.move()
            return True

        self.far.until(done)

    def frame(self) -> bytes:
        """The next request."""

        def whole() -> bool:
            self.move()
            with contextlib.suppress(ssl.SSLWantReadError):
                self._got.extend(self.tls.read(1 << 16))
            return len(self._got) >= 4 and len(self._got) >= 4 + int.from_bytes(self._got[:4], "big")

        self.far.until(whole)
        end = 4 + int.from_bytes(self._got[:4], "big")
        body = bytes(self._got[4:end])
        del self._got[:end]
        return body

    def send(self, *bodies: bytes) -> None:
        """All of them in one go, so that they are decrypted together."""
        self.tls.write(b"".join(len(body).to_bytes(4, "big") + body for body in bodies))
        self.move()

    def agree(self) -> None:
        frame = self.frame()
        assert int.from_bytes(frame[:2], "big") == ApiKey.API_VERSIONS
        self.send(answer(frame, versions()))


def answer(frame: bytes, response: object) -> bytes:
    """The body of an answer to this request."""
    key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
    said = ResponseHeader(correlation_id=int.from_bytes(frame[4:8], "big"))
    return encode(said, response_header_version(key, version)) + encode(response, version)


def over_tls(ca: Path) -> Login:
    return Login(None, lambda: ssl.create_default_context(cafile=ca))


def listed(end: TlsEnd, told: Told) -> None:
    end.send(answer(end.frame(), ListGroupsResponse(throttle_time_ms=7)))
    end.far.until(lambda: bool(told.values))
    assert told.value.throttle_time_ms == 7


def test_requests_and_answers_go_under_tls_and_a_complaint_is_over(far: FarEnd, certificates: Certificates) -> None:
    login = over_tls(certificates.ca)
    login.complaints[("127.0.0.1", far.port)] = "an earlier complaint"
    near = outbound(far, login)
    told = ask(near)
    far.accept()
    end = TlsEnd(far, certificates.broker)
    end.shake()
    end.agree()
    listed(end, told)
    assert near.is_connected and not login.complaints
    near.close()


@pytest.mark.parametrize("rows", [10, 150, 1_000])
def test_an_answer_that_is_decrypted_in_several_reads_comes_whole(
    far: FarEnd, certificates: Certificates, rows: int
) -> None:
    near = outbound(far, over_tls(certificates.ca))
    long, short = ask(near, FindCoordinatorRequest(coordinator_keys=["k"]), at_least=4), ask(near)
    far.accept()
    end = TlsEnd(far, certificates.broker)
    end.shake()
    end.agree()
    first, second = end.frame(), end.frame()
    found = FindCoordinatorResponse(coordinators=[Coordinator(key="k" * 1_000, node_id=row) for row in range(rows)])
    end.send(answer(first, found), answer(second, ListGroupsResponse(throttle_time_ms=9)))
    far.until(lambda: bool(long.values) and bool(short.values))
    assert long.value == found and short.value.throttle_time_ms == 9
    near.close()


def test_a_certificate_that_is_not_trusted_is_told_once_in_the_log(
    far: FarEnd, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    login = over_tls(certificates.stranger)
    near = outbound(far, login)
    for _ in range(2):
        told = ask(near)
        far.accept()
        end = TlsEnd(far, certificates.broker)
        with pytest.raises(ssl.SSLError, match="UNKNOWN_CA"):
            end.shake()
        assert "cannot be reached: the TLS handshake failed: the certificate is not trusted (" in refused(far, told)
    assert caplog.text.count("the certificate is not trusted") == 1
    assert caplog.text.count(f"127.0.0.1:{far.port} cannot be reached") == 1
    near.close()


def test_a_peer_that_goes_in_the_handshake_is_told_and_dialled_again(far: FarEnd, certificates: Certificates) -> None:
    near = outbound(far, over_tls(certificates.ca))
    told = ask(near)
    far.accept()
    far.drop()
    assert "the TLS handshake failed" in refused(far, told)
    again = ask(near)
    far.accept()
    end = TlsEnd(far, certificates.broker)
    end.shake()
    end.agree()
    listed(end, again)
    near.close()


def test_a_peer_that_says_nothing_in_the_handshake_is_left_after_the_setup_time(
    far: FarEnd, certificates: Certificates
) -> None:
    near = outbound(far, over_tls(certificates.ca), setup_timeout_ms=20, setup_timeout_max_ms=20)
    told = ask(near)
    far.accept()
    assert "connecting took too long" in refused(far, told)
    assert near._handshake is None and near._tls is None
    near.close()


def test_a_close_in_the_handshake_ends_it(far: FarEnd, certificates: Certificates) -> None:
    near = outbound(far, over_tls(certificates.ca))
    told = ask(near)
    far.accept()
    far.until(lambda: near._handshake is not None)
    handshake = near._handshake
    near.close()
    assert "closed by this node" in refused(far, told)
    assert handshake is not None and handshake.is_over
    # What OpenSSL's thread still finds out is nobody's any more.
    for _ in range(50):
        far.loop.run_until_complete(asyncio.sleep(0))
    assert len(told.values) == 1


def test_a_name_that_no_certificate_can_bear_is_told(
    far: FarEnd, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.net.outbound._resolve", lambda host, port: ["127.0.0.1"])
    near = outbound(far, over_tls(certificates.ca))
    near.host = ".example"
    told = ask(near)
    assert "its name cannot be checked" in refused(far, told)
    near.close()


def test_a_record_that_was_changed_on_the_way_ends_the_connection(far: FarEnd, certificates: Certificates) -> None:
    near = outbound(far, over_tls(certificates.ca))
    told = ask(near)
    far.accept()
    end = TlsEnd(far, certificates.broker)
    end.shake()
    end.agree()
    end.tls.write(answer(end.frame(), ListGroupsResponse()))
    data = bytearray(end.outgoing.read())
    data[-1] ^= 1
    assert far.sock is not None
    far.sock.sendall(data)
    far.until(lambda: bool(told.values))
    assert not near.is_connected and told.value.was_sent
    near.close()
