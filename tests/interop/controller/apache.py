"""Apache Kafka's controller without brokers, and what it has written so far.

It keeps no idle records and elects nothing by itself, so that its log holds what it was asked for, and the brokers that
it fences because they are silent.
"""

import struct
import time
from pathlib import Path
from typing import Any, NamedTuple

from ottla.wire.batch import read
from ottla.wire.record.metadata import RegisterControllerRecord, parse
from tests.interop import server as servers
from tests.interop import toolchain
from tests.interop.server import START_TIMEOUT_S, Server

NODE_ID = 3000
SESSION_MS = 1500
#: (offset of the batch, its size), as every batch begins.
_LENGTH = struct.Struct(">qi")

SETTINGS = {
    "process.roles": "controller",
    "node.id": str(NODE_ID),
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
    "broker.session.timeout.ms": str(SESSION_MS),
    "metadata.max.idle.interval.ms": "0",
    "controller.quorum.append.linger.ms": "0",
    "auto.leader.rebalance.enable": "false",
    "unclean.leader.election.interval.ms": "100000000",
}


class Written(NamedTuple):
    """One batch of metadata records."""

    offset: int
    records: list[Any]


class ApacheController(Server):
    """`start` returns when it leads its quorum of one."""

    def __init__(self, directory: Path) -> None:
        super().__init__(servers.apache(toolchain.quick_jvm("256m")), directory, base=SETTINGS)
        self._position = 0

    def written(self) -> list[Written]:
        """The batches that are new since this was asked last, control records left away."""
        found = []
        path = self.log_dir / "__cluster_metadata-0" / f"{0:020}.log"
        with path.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        end = 0
        while len(data) >= end + _LENGTH.size:
            _, size = _LENGTH.unpack_from(data, end)
            if end + _LENGTH.size + size > len(data):
                break
            end += _LENGTH.size + size
        for batch in read(data[:end]):
            records = list(batch.records())
            values = [] if batch.header.is_control else [parse(record.value or b"")[0] for record in records]
            found.append(Written(records[0].offset, values or [None] * len(records)))
        self._position += end
        return found

    def _properties(self, controller_port: int) -> str:
        self.port = controller_port
        addresses = {
            "listeners": f"CONTROLLER://127.0.0.1:{controller_port}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
            "log.dirs": str(self.log_dir),
        }
        return "".join(f"{name}={value}\n" for name, value in {**self.base, **addresses}.items())

    def _await_ready(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"Apache's controller ended while starting:\n{self.tail()}")
            try:
                batches, self._position = self.written(), 0
            except FileNotFoundError:
                batches = []
            if any(isinstance(record, RegisterControllerRecord) for each in batches for record in each.records):
                return
            time.sleep(0.05)
        raise AssertionError(f"Apache's controller does not lead after {START_TIMEOUT_S:.0f} s:\n{self.tail()}")
