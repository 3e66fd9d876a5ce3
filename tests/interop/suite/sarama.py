"""sarama's functional tests, from its Go module.

They expect five brokers at fixed ports, each behind a proxy that they switch off and slow down. One node stands behind
all five, and names the first as its own address, so that every connection passes through a proxy of theirs.
"""

import json
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.interop import toolchain
from tests.interop.server import free_ports
from tests.interop.suite import go_program
from tests.interop.suite.outcome import LEAST, Report, expected_of, judged

#: Where the tests look for their brokers.
PORTS = range(29091, 29096)
#: What their own cluster is started with, as far as one broker has it.
SECURED_SETTINGS = {
    "auto.create.topics.enable": "false",
    "broker.rack": "1",
    "group.initial.rebalance.delay.ms": "0",
}
BROKER_SETTINGS = {**SECURED_SETTINGS, "advertised.listeners": f"PLAINTEXT://localhost:{PORTS[0]}"}
_START_TIMEOUT_S = 10


def run(bootstrap: str, *, secured: Mapping[str, str] | None = None, pattern: str = ".") -> Report:
    """Run the tests that want a broker and fit a pattern; `secured`: by which settings they use TLS and PLAIN."""
    suite = "sarama" if secured is None else "sarama_secured"
    program, directory = toolchain.sarama_tests()
    names = [
        name
        for path in sorted(directory.glob("functional_*_test.go"))
        for name in re.findall(r"^func (Test\w+)\(", path.read_text(), re.MULTILINE)
        if name != "TestMain" and re.search(pattern, name)
    ]
    with proxies(bootstrap) as address:
        settings = {"TOXIPROXY_ADDR": address, "KAFKA_VERSION": "4.3.1", **(secured or {})}
        outcomes = go_program.run(program, directory, settings, f"^({'|'.join(names)})$")
        return judged(
            suite,
            outcomes,
            expected_of(suite),
            lambda one: go_program.alone(program, directory, settings, one),
            least=LEAST[suite] if pattern == "." else 1,
        )


@contextmanager
def proxies(bootstrap: str) -> Iterator[str]:
    """The proxies in front of the node; gives the address at which they are managed."""
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [toolchain.toxiproxy(), "-host", "127.0.0.1", "-port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    try:
        for number, at in enumerate(PORTS, 1):
            _add(address, {"name": f"kafka{number}", "listen": f"127.0.0.1:{at}", "upstream": bootstrap})
        yield address
    finally:
        process.terminate()
        process.wait(_START_TIMEOUT_S)


def _add(address: str, proxy: dict[str, str]) -> None:
    body = json.dumps({**proxy, "enabled": True}).encode()
    request = urllib.request.Request(f"{address}/proxies", body, {"Content-Type": "application/json"})
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            with urllib.request.urlopen(request, timeout=_START_TIMEOUT_S):
                return
        except urllib.error.URLError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
