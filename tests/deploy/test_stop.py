"""The end of a node's process: nothing of it stays behind."""

from __future__ import annotations

import subprocess
import sys


def test_a_process_ends_though_the_name_of_a_peer_is_still_being_resolved() -> None:
    program = """
import asyncio, random, socket, threading
from ottla.net.outbound import Outbound
from ottla.wire.api.vote import VoteRequest
async def main():
    loop, begun = asyncio.get_running_loop(), asyncio.Event()
    def never(*arguments, **options):
        loop.call_soon_threadsafe(begun.set)
        threading.Event().wait()
    socket.getaddrinfo = never
    near = Outbound(loop, "gone", 9093, client_id="1", rng=random.Random(1))
    near.ask(VoteRequest(), print, timeout_ms=60_000)
    await begun.wait()
    near.close()
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
loop.close()
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=30).returncode == 0
