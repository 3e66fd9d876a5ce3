"""The memory that connections receive into, as the machine counts it."""

import os
from pathlib import Path

from ottla.net.memory import RECEIVE_BUFFER_BYTES, ReceiveMemory


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_receive_buffer_takes_only_the_pages_that_were_received_into() -> None:
    before = _resident_bytes()
    buffers = [ReceiveMemory() for _ in range(64)]
    assert _resident_bytes() - before < 16 * RECEIVE_BUFFER_BYTES
    assert all(bytes(buffer.shared[:4]) == bytes(4) for buffer in buffers)


def test_a_fork_receives_into_memory_of_its_own() -> None:
    memory = ReceiveMemory()
    memory.shared[:4] = b"ours"
    child = os.fork()
    if child == 0:
        memory.shared[:4] = b"fork"
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert bytes(memory.shared[:4]) == b"ours"
