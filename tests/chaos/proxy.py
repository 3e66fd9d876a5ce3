"""A TCP proxy in a node's namespace: what the node sends to other nodes, and their answers, may arrive late.

Rules:
- The namespace turns the node's connections to this port; the proxy asks the kernel where they were to go.
- Bytes of one connection keep their order. Each piece is late by its own delay, so that connections overtake each
  other: a heartbeat a fetch, an answer a later one of another connection.
- A line on stdin, `LOW HIGH`, is the delay of every piece from then on, in ms; it begins with none.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from random import Random

#: `SO_ORIGINAL_DST` of <linux/netfilter_ipv4.h>.
_ORIGINAL_TARGET = 80
_SOCKADDR_BYTES = 16
_PIECE_BYTES = 1 << 16
_PIECES_MAX = 64
PORT = 7777
#: The mark of the proxy's own packets, which are not turned to it.
MARK = 7
_Piece = tuple[float, bytes]


class Delays:
    """How late pieces are."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)
        self._range_ms = (0.0, 0.0)

    def set(self, line: str) -> None:
        low, high = line.split()
        self._range_ms = (float(low), float(high))

    def draw(self) -> float:
        """Seconds."""
        return self._rng.uniform(*self._range_ms) / 1000


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delays: Delays) -> None:
    """Bytes of one direction, until its end."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[_Piece | None] = asyncio.Queue(_PIECES_MAX)

    async def send() -> None:
        while (piece := await pieces.get()) is not None:
            due, data = piece
            await asyncio.sleep(due - loop.time())
            writer.write(data)
            await writer.drain()

    async def receive() -> None:
        while data := await reader.read(_PIECE_BYTES):
            await pieces.put((loop.time() + delays.draw(), data))
        await pieces.put(None)

    async with asyncio.TaskGroup() as group:
        group.create_task(receive())
        group.create_task(send())


async def _proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delays: Delays) -> None:
    there: asyncio.StreamWriter | None = None
    try:
        told = writer.get_extra_info("socket").getsockopt(socket.SOL_IP, _ORIGINAL_TARGET, _SOCKADDR_BYTES)
        host, port = socket.inet_ntoa(told[4:8]), int.from_bytes(told[2:4], "big")
        connection = socket.socket()
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, MARK)
        await asyncio.get_running_loop().sock_connect(connection, (host, port))
        back, there = await asyncio.open_connection(sock=connection)
        ways = [asyncio.ensure_future(_carry(*each, delays)) for each in ((reader, there), (back, writer))]
        # A connection has no halves here: when one direction ends, both do.
        _, left = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for each in left:
            each.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
    except OSError:
        # The other node is not there; its peer finds that out by the close.
        pass
    finally:
        writer.close()
        if there is not None:
            there.close()


async def main(seed: int) -> None:
    """Proxy until stdin ends."""
    delays = Delays(seed)
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    server = await asyncio.start_server(lambda reader, writer: _proxy(reader, writer, delays), "0.0.0.0", PORT)
    print("ready", flush=True)
    async with server:
        while line := await lines.readline():
            delays.set(line.decode())


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
