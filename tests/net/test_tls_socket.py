"""TLS over a socket whose room and bytes the test decides: prefixes, pieces that wait, ends, and words of errors."""

from __future__ import annotations

import errno
import ssl
from typing import cast

import pytest

from ottla.net import tls
from ottla.net.tls import TlsSocket, tls_reason
from tests.client import certificate
from tests.client.certificate import Certificates

_PIECE = 1 << 18


class Wire:
    """One end of a wire: a socket that takes as many bytes as it has room for."""

    def __init__(self) -> None:
        self.other: Wire = self
        self.arrived = bytearray()
        self.room = 1 << 30
        self.has_ended = self.closed = False

    def send(self, data: memoryview) -> int:
        count = min(self.room, len(data))
        if not count:
            raise BlockingIOError
        self.room -= count
        self.other.arrived += data[:count]
        return count

    def recv_into(self, buffer: memoryview, size: int = 0) -> int:
        count = min(len(self.arrived), size or len(buffer))
        if not count and not self.has_ended:
            raise BlockingIOError
        buffer[:count] = self.arrived[:count]
        del self.arrived[:count]
        return count

    def close(self) -> None:
        self.closed = self.other.has_ended = True


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificate.make(tmp_path_factory.mktemp("certificates"))


class Pair:
    """A client and a server, after their handshake."""

    def __init__(self, certificates: Certificates) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.broker)
        # Tickets would come before the first bytes of the server.
        context.num_tickets = 0
        trusting = ssl.create_default_context(cafile=certificates.ca)
        self.wire, far = Wire(), Wire()
        self.wire.other, far.other = far, self.wire
        self.far = far
        self.server = TlsSocket(cast(ssl.SSLSocket, self.wire), context)
        self.client = TlsSocket(cast(ssl.SSLSocket, far), trusting, "127.0.0.1")
        done = [False, False]
        while not all(done):
            for place, end in enumerate((self.client, self.server)):
                done[place] = end.step()
                assert end.flush()
                if self._wire_of(end).arrived:
                    assert end.receive_handshake() > 0
        self.client.is_ready = self.server.is_ready = True

    def _wire_of(self, end: TlsSocket) -> Wire:
        return self.wire if end is self.server else self.far

    def received(self) -> bytes:
        """What the client can read now."""
        got = bytearray()
        buffer = memoryview(bytearray(1 << 16))
        while True:
            try:
                count = self.client.recv_into(buffer)
            except BlockingIOError:
                return bytes(got)
            if not count:
                return bytes(got)
            got += buffer[:count]


@pytest.fixture
def pair(certificates: Certificates) -> Pair:
    return Pair(certificates)


def test_a_prefix_of_long_data_is_sent_and_its_length_returned(pair: Pair) -> None:
    data = bytes(range(256)) * 2_000
    assert pair.server.send(b"short") == 5
    assert pair.server.send(data) == _PIECE
    assert pair.server.send(memoryview(data)[_PIECE:]) == len(data) - _PIECE
    assert pair.server.send(b"") == 0
    assert pair.received() == b"short" + data


def test_a_piece_that_the_kernel_takes_in_part_waits_and_goes_out_once(pair: Pair) -> None:
    pair.wire.room = 1_000
    with pytest.raises(BlockingIOError):
        pair.server.send(b"x" * 5_000)
    waited = [pair.server.has_unsent]
    with pytest.raises(BlockingIOError):
        pair.server.sendmsg([b"x" * 5_000, b"y"])
    pair.wire.room = 1 << 30
    assert pair.server.sendmsg([b"x" * 5_000, b"y"]) == 5_000, "the piece alone, not what follows it"
    waited.append(pair.server.has_unsent)
    assert waited == [True, False]
    assert pair.server.send(b"y") == 1
    assert pair.received() == b"x" * 5_000 + b"y"


def test_pieces_go_together_up_to_a_bound(pair: Pair) -> None:
    assert pair.server.sendmsg([b"a", memoryview(b"bc"), b"", b"d"]) == 4
    assert pair.server.sendmsg([bytes(_PIECE - 1), b"e", b"f"]) == _PIECE
    assert pair.server.sendmsg([bytes(_PIECE + 10), b"g"]) == _PIECE
    assert pair.received() == b"abcd" + bytes(_PIECE - 1) + b"e" + bytes(_PIECE)


def test_a_read_fills_its_buffer_and_says_when_more_is_decrypted(pair: Pair) -> None:
    pair.server.send(b"0123456789")
    buffer = memoryview(bytearray(4))
    assert pair.client.recv_into(buffer) == 4 and bytes(buffer) == b"0123"
    more = [pair.client.has_more]
    first, second = memoryview(bytearray(3)), memoryview(bytearray(8))
    assert pair.client.recvmsg_into([first, second]) == (6,)
    assert bytes(first) + bytes(second[:3]) == b"456789"
    more.append(pair.client.has_more)
    assert more == [True, False]
    with pytest.raises(BlockingIOError):
        pair.client.recv_into(buffer)


def test_the_second_buffer_is_used_only_when_the_first_is_full(pair: Pair) -> None:
    pair.server.send(b"012")
    first, second = memoryview(bytearray(5)), memoryview(bytearray(8))
    assert pair.client.recvmsg_into([first, second]) == (3,)
    assert bytes(first[:3]) == b"012" and bytes(second) == bytes(8)


def test_what_is_decrypted_is_returned_before_more_is_waited_for(pair: Pair) -> None:
    pair.server.send(b"0123456789")
    assert pair.client.recv_into(memoryview(bytearray(4))) == 4
    rest = memoryview(bytearray(100))
    assert pair.client.recv_into(rest) == 6
    assert bytes(rest[:6]) == b"456789"


@pytest.mark.parametrize("is_told", [True, False])
def test_an_end_is_zero_bytes_after_what_came_before_it(pair: Pair, is_told: bool) -> None:
    pair.server.send(b"last")
    pair.server.is_ready = is_told
    pair.server.close()
    assert pair.wire.closed
    assert pair.received() == b"last"
    assert pair.client._ended is is_told
    if is_told:
        assert pair.client.recv_into(memoryview(bytearray(4))) == 0


def test_a_close_with_a_piece_that_waits_says_nothing_more(pair: Pair) -> None:
    pair.wire.room = 10
    with pytest.raises(BlockingIOError):
        pair.server.send(b"x" * 100)
    pair.wire.room = 1 << 30
    pair.far.arrived.clear()
    pair.server.close()
    assert pair.wire.closed and not pair.far.arrived


def test_messages_of_openssl_wait_for_room_and_go_in_front(pair: Pair) -> None:
    pair.server._out.write(b"OPENSSL")
    pair.wire.room = 3
    assert not pair.server.flush()
    assert bytes(pair.far.arrived) == b"OPE"
    pair.wire.room = 1 << 30
    assert pair.server.flush()
    assert bytes(pair.far.arrived) == b"OPENSSL"


def test_data_goes_behind_messages_that_wait(pair: Pair) -> None:
    pair.server._out.write(b"OPENSSL")
    pair.wire.room = 0
    assert not pair.server.flush()
    pair.wire.room = 1 << 30
    pair.server.send(b"x")
    assert pair.far.arrived.startswith(b"OPENSSL")
    del pair.far.arrived[:7]
    assert pair.received() == b"x"


def test_a_peer_that_makes_openssl_answer_and_does_not_read_is_cut_off(pair: Pair) -> None:
    pair.wire.room = 0
    pair.server._out.write(bytes(tls._SEND_BYTES + tls._UNREAD_BYTES_MAX))
    pair.server._answer()
    pair.server._out.write(b"x")
    with pytest.raises(OSError, match="does not read the answers"):
        pair.server._answer()
    pair.wire.room = 1 << 30
    pair.server._answer()


def test_a_record_that_was_changed_is_answered_with_the_reason(pair: Pair) -> None:
    pair.server.send(b"x" * 100)
    pair.far.arrived[-1] ^= 1
    with pytest.raises(ssl.SSLError):
        pair.client.recv_into(memoryview(bytearray(100)))
    assert pair.wire.arrived, "an alert"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.EPIPE, "Broken pipe"), "Broken pipe"),
        (OSError("in words"), "in words"),
        (OSError(), "connection lost"),
    ],
)
def test_an_error_has_words(error: OSError, words: str) -> None:
    assert tls_reason(error) == words


def test_an_error_of_openssl_is_told_without_its_codes(certificates: Certificates) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.broker)
    wire = Wire()
    server = TlsSocket(cast(ssl.SSLSocket, wire), context)
    wire.arrived += b"GET / HTTP/1.1\r\n\r\n"
    server.receive_handshake()
    with pytest.raises(ssl.SSLError) as error:
        server.step()
    assert tls_reason(error.value) == "http request"
