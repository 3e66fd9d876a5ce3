"""When a TLS handshake is over, and that nothing of it is left on the loop after its end."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from ottla.net.handshake import Handshake
from ottla.net.inbound import Connection
from ottla.net.tls import TlsSocket
from ottla.net.tls_inbound import TlsConnection
from tests.client import certificate
from tests.client.certificate import Certificates
from tests.net.test_tls import Served


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificate.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def served(certificates: Certificates) -> Iterator[Served]:
    with ThreadPoolExecutor(1) as pool, contextlib.closing(Served(certificates, pool)) as served:
        yield served


def test_a_connection_is_secured_when_the_handshake_is_over_and_not_before(
    served: Served, certificates: Certificates
) -> None:
    shown: list[tuple[bool, bytes | None, int]] = []

    def secured(connection: Connection, made: ssl.SSLObject) -> None:
        shown.append((made.cipher() is not None, connection.peer_certificate(), served.side.handshakes_running))

    served.secured = secured
    served.context.verify_mode = ssl.CERT_REQUIRED
    served.trusting.load_cert_chain(certificates.client)
    client = served.client()
    with contextlib.suppress(ssl.SSLWantReadError):
        client.tls.do_handshake()
    client.push()
    served.until(lambda: served.side.handshakes_running == 1)
    assert not shown
    client.shake()
    served.until(lambda: bool(shown))
    own = ssl.PEM_cert_to_DER_cert(certificates.client_certificate.read_text())
    assert shown == [(True, own, 0)]


def test_a_client_without_the_certificate_that_is_required_is_never_secured(served: Served) -> None:
    secured: list[Connection] = []
    served.secured = lambda connection, made: secured.append(connection)
    served.context.verify_mode = ssl.CERT_REQUIRED
    client = served.client()
    # A client of TLS 1.3 is through before the server has seen that its certificate is missing.
    client.shake()
    served.until(lambda: bool(served.closed))
    assert not secured and served.closed[0].startswith("the TLS handshake failed: ")
    assert served.side.handshakes_running == 0


def handshake_of(served: Served) -> Handshake:
    served.until(lambda: bool(served.listener.connections))
    [connection] = served.listener.connections
    return cast(TlsConnection, connection)._handshake


def test_a_socket_that_has_nothing_after_all_is_waited_for_again(served: Served) -> None:
    client = served.client()
    handshake = handshake_of(served)
    served.loop.remove_reader(handshake._fd)
    assert handshake.has_work() is False and not handshake.is_over
    client.shake()
    served.until(lambda: handshake.is_over)
    assert not served.closed


def test_a_handshake_that_is_over_has_no_work_and_ends_once(served: Served) -> None:
    served.raw()
    handshake = handshake_of(served)
    handshake.cancel()
    assert handshake.is_over and handshake._timer.cancelled()
    assert handshake.has_work() is False
    handshake._end(OSError("late"))
    handshake._expired(1)
    assert not served.closed
    assert not served.loop.remove_reader(handshake._fd) and not served.loop.remove_writer(handshake._fd)


def test_a_handshake_whose_answer_the_kernel_does_not_take_goes_on_when_it_does(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush = TlsSocket.flush
    refusals = [True, True]

    def reluctant(sock: TlsSocket) -> bool:
        return False if refusals and refusals.pop() else flush(sock)

    monkeypatch.setattr(TlsSocket, "flush", reluctant)
    client = served.client()
    client.shake()
    client.tls.write(b"\0\0\0\1x")
    client.push()
    served.until(lambda: served.frames == [b"x"])
    assert not refusals and handshake_of(served).is_over


def test_a_connection_closed_while_its_answer_waits_leaves_no_writer(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TlsSocket, "flush", lambda sock: False)
    client = served.client()
    handshake = handshake_of(served)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.tls.do_handshake()
    client.push()
    # The answer waits for room: the loop has a writer, which is tried again and again.
    tries: list[bool] = []
    answer = handshake._answer

    def noted(error: OSError | None, finished: bool) -> None:
        tries.append(finished)
        answer(error, finished)

    monkeypatch.setattr(handshake, "_answer", noted)
    served.until(lambda: len(tries) > 2)
    handshake.cancel()
    count = len(tries)
    for _ in range(20):
        served.loop.call_soon(served.loop.stop)
        served.loop.run_forever()
    assert len(tries) == count


def test_a_handshake_of_too_many_bytes_fails(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.net.handshake._BYTES_MAX", 100)
    client = served.client()
    with contextlib.suppress(ssl.SSLWantReadError):
        client.tls.do_handshake()
    client.push()
    served.until(lambda: bool(served.closed))
    assert served.closed == ["the TLS handshake failed: the TLS handshake is longer than 100 bytes"]


def test_an_error_of_ours_in_a_step_is_told(served: Served) -> None:
    failed: list[object] = []
    served.loop.set_exception_handler(lambda loop, context: failed.append(context["exception"]))
    served.raw()
    handshake = handshake_of(served)
    for error in (RuntimeError("ours"), None):
        step = served.loop.create_future()
        if error is not None:
            step.set_exception(error)
            with pytest.raises(RuntimeError, match="ours"):
                handshake.step_done(step)
        else:
            step.cancel()
            handshake.step_done(step)
    assert served.closed == ["the TLS handshake failed: the node stops"]
