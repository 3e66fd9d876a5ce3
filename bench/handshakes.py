"""The cost of 200 simultaneous TLS handshakes for an existing client: `python -m bench.handshakes [--rounds 5]`.

A client requests metadata on a PLAINTEXT listener, some 1,500 times a second, and measures each answer: alone, beside
bursts of 200 new connections at the same node's SSL listener, and beside bursts at another node, which cost this node
only CPU (in the other cases the other node is stopped). The client of the bursts stands for other machines, and must
not take the processors from the node and the client that measures: with root these two run before everything else
(SCHED_RR), and the bursts next; without root the bursts run in the idle scheduling class. Ottla and Apache Kafka
alternate; certificates are P-256. The table goes to bench/results/handshakes.md.
"""

import argparse
import json
import os
import selectors
import signal
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from bench import RESULTS, ROOT, SCRATCH
from tests.client import certificate
from tests.interop import server as servers
from tests.interop import toolchain

_RESULT = RESULTS / "handshakes.md"
_AT_ONCE = 200
_SECONDS = 3.0
#: Pauses between two bursts, and between two requests.
_PAUSE_SECONDS, _THINK_SECONDS = 0.05, 0.0005
#: Priorities of the nodes with the client that measures, and of the bursts.
_FIRST, _NEXT = 5, 1
_JVM = ("-Xms256m", "-Xmx768m", "-XX:+UseG1GC")
_CASES = ("alone", "bursts at this node", "bursts at the other node")


def _order() -> str:
    first = "Node and client run before the bursts, and these before all other processes."
    return first if os.geteuid() == 0 else "The bursts run in the idle scheduling class."


_HEAD = f"""# {_AT_ONCE} handshakes at once

Written by `python -m bench.handshakes`, which says how it measures. p50, p99 and p99.9 of an answer in milliseconds,
medians of the rounds; handshakes a second beside them. {os.cpu_count()} cores, shared by node, client and bursts.
{_order()}

| node | the client | p50 | p99 | p99.9 | handshakes a second |
|---|---|---|---|---|---|
"""


class SecuredServer(servers.Server):
    """A server with PLAINTEXT and SSL; `files` are those of `certificate.make`."""

    ssl_port: int

    def __init__(self, kind: servers.Kind, directory: Path, settings: Mapping[str, str], files: Path) -> None:
        super().__init__(kind, directory, settings)
        self.files = files

    @property
    def ca(self) -> Path:
        """The certificate of its CA."""
        return self.files / "ca.pem"

    def _properties(self, controller_port: int) -> str:
        (self.ssl_port,) = servers.free_ports(1)
        listeners = f"PLAINTEXT://127.0.0.1:{self.port},SSL://127.0.0.1:{self.ssl_port}"
        lines = {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.files / "broker.pem"),
        }
        return super()._properties(controller_port) + "".join(f"{name}={value}\n" for name, value in lines.items())


def main() -> int:
    """Measure, or be one of the two clients."""
    options = _options()
    if options.ask:
        print(json.dumps(_ask(options.ask)))
    elif options.burst:
        print(json.dumps(_burst(options.burst, options.ca)))
    else:
        with suppress(PermissionError):
            _run_before_others(_FIRST)
        _measure(options.rounds)
    return 0


def _run_before_others(priority: int) -> None:
    """Run this process and those that it starts before the usual ones, and after those of a higher priority."""
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(priority))


def _measure(rounds: int) -> None:
    figures: dict[tuple[str, str], list[list[float]]] = {}
    with secured_nodes(servers.HELD) as nodes:
        for node in nodes:
            # Warm both up with every request and a burst.
            _case(node, node)
        for _ in range(rounds):
            for node, other in (nodes, nodes[::-1]):
                for case, target in zip(_CASES, (None, node, other), strict=True):
                    with paused(other, really=target is not other):
                        figures.setdefault((node.name, case), []).append(_case(node, target))
    rows = []
    for (name, case), found in figures.items():
        p50, p99, p999, rate = (statistics.median(column) for column in zip(*found, strict=True))
        rows.append(f"| {name} | {case} | {p50:.2f} | {p99:.2f} | {p999:.2f} | {f'{rate:,.0f}' if rate else ''} |\n")
    _RESULT.write_text(_HEAD + "".join(rows))
    print(_RESULT.read_text())


@contextmanager
def secured_nodes(settings: Mapping[str, str]) -> Iterator[list[SecuredServer]]:
    """Ours and Apache's, running, with certificates of one CA."""
    toolchain.jars()
    SCRATCH.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
        files = Path(scratch) / "certificates"
        certificate.make(files)
        kinds = (servers.ottla(), servers.apache(_JVM))
        nodes = [SecuredServer(kind, Path(scratch) / kind.name, settings, files) for kind in kinds]
        try:
            for node in nodes:
                node.start()
            yield nodes
        finally:
            for node in nodes:
                node.stop()


@contextmanager
def paused(node: SecuredServer, *, really: bool) -> Iterator[None]:
    """Pause an unused process, so that it takes no CPU."""
    if really:
        os.kill(node.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(node.pid, signal.SIGCONT)


def _case(node: SecuredServer, target: SecuredServer | None) -> list[float]:
    """p50, p99 and p99.9 of the client's answers in ms, and handshakes per second at `target`."""
    us = [sys.executable, "-m", "bench.handshakes"]
    bursts = None
    if target is not None:
        command = [*us, "--burst", str(target.ssl_port), "--ca", str(target.ca)]
        bursts = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    asked = subprocess.run([*us, "--ask", str(node.port)], stdout=subprocess.PIPE, check=True, cwd=ROOT)
    rate = float(json.loads(bursts.communicate()[0])) if bursts else 0.0
    return [*json.loads(asked.stdout), rate]


def _ask(port: int) -> list[float]:
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Metadata v1 of no topic.
    body = struct.pack(">hhihi", 3, 1, 1, -1, 0)
    stream = sock.makefile("rb")
    took = []
    # The bursts begin meanwhile.
    time.sleep(0.5)
    end = time.perf_counter() + _SECONDS
    while (began := time.perf_counter()) < end:
        sock.sendall(struct.pack(">i", len(body)) + body)
        stream.read(struct.unpack(">i", stream.read(4))[0])
        took.append(time.perf_counter() - began)
        time.sleep(_THINK_SECONDS)
    took.sort()
    return [took[int(len(took) * part)] * 1000 for part in (0.5, 0.99, 0.999)]


def _burst(port: int, ca: str) -> float:
    """Make bursts for a second longer than the other client runs; returns handshakes per second."""
    try:
        _run_before_others(_NEXT)
    except PermissionError:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    context = ssl.create_default_context(cafile=ca)
    began, shaken = time.perf_counter(), 0
    while time.perf_counter() < began + _SECONDS + 1:
        with selectors.DefaultSelector() as selector:
            for _ in range(_AT_ONCE):
                sock = socket.socket()
                sock.setblocking(False)
                sock.connect_ex(("127.0.0.1", port))
                selector.register(sock, selectors.EVENT_WRITE)
            while selector.get_map():
                for key, _ in selector.select():
                    shaken += _go_on(selector, key, context)
        time.sleep(_PAUSE_SECONDS)
    return shaken / (time.perf_counter() - began)


def _go_on(selector: selectors.DefaultSelector, key: selectors.SelectorKey, context: ssl.SSLContext) -> bool:
    """Advance one connection by a step; True when its handshake is over."""
    sock = key.fileobj
    assert isinstance(sock, socket.socket)
    selector.unregister(sock)
    if not isinstance(sock, ssl.SSLSocket):
        sock = context.wrap_socket(sock, do_handshake_on_connect=False, server_hostname="127.0.0.1")
    try:
        sock.do_handshake()
    except ssl.SSLWantReadError:
        selector.register(sock, selectors.EVENT_READ)
        return False
    sock.close()
    return True


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.handshakes", description=f"{_AT_ONCE} TLS handshakes at once.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ask", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--burst", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--ca", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
