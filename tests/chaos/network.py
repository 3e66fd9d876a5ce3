"""A network of this machine: a bridge, and for each node a namespace with an address of its own.

Rules:
- Packets are dropped where they arrive, silently, as on a broken wire: nobody is told that the other is out of reach.
- With `proxies` each namespace has a proxy (`tests.chaos.proxy`): its node's connections to other nodes go through it.
- Everything bears a name of this run and is removed at its end.
"""

from __future__ import annotations

import os
import subprocess
import sys
from types import TracebackType
from typing import Self

from ottla.kernel.error import OttlaError
from tests.chaos.proxy import MARK, PORT

_TABLE = "chaos"


class Network:
    """Namespaces 1 to `count`; this process is at the bridge and reaches all of them."""

    def __init__(self, count: int, *, proxies: bool = False) -> None:
        self._with_proxies = proxies
        self._proxies: dict[int, subprocess.Popen[bytes]] = {}
        self._tag = f"oc{os.getpid() % 100_000}"
        self._net = f"10.{100 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
        self.nodes = range(1, count + 1)
        #: (from, to) whose packets are dropped.
        self._cut: set[tuple[int, int]] = set()

    def address(self, node: int) -> str:
        return f"{self._net}.{10 + node}"

    def inside(self, node: int) -> list[str]:
        """What a command begins with that runs in the node's namespace."""
        return ["ip", "netns", "exec", f"{self._tag}-{node}"]

    def __enter__(self) -> Self:
        try:
            _run("ip", "link", "add", f"{self._tag}br", "type", "bridge")
            _run("ip", "address", "add", f"{self._net}.1/24", "dev", f"{self._tag}br")
            _run("ip", "link", "set", f"{self._tag}br", "up")
            for node in self.nodes:
                space, wire = f"{self._tag}-{node}", f"{self._tag}v{node}"
                _run("ip", "netns", "add", space)
                _run("ip", "link", "add", wire, "type", "veth", "peer", "name", "eth0", "netns", space)
                _run("ip", "link", "set", wire, "master", f"{self._tag}br", "up")
                _run("ip", "-n", space, "address", "add", f"{self.address(node)}/24", "dev", "eth0")
                _run("ip", "-n", space, "link", "set", "eth0", "up")
                _run("ip", "-n", space, "link", "set", "lo", "up")
                chain = f"add chain ip {_TABLE} arrives {{ type filter hook input priority 0; }}"
                _run(*self.inside(node), "nft", f"add table ip {_TABLE}; {chain}")
                if self._with_proxies:
                    self._proxy(node)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._proxies.values():
            process.kill()
            process.wait()
        for node in self.nodes:
            subprocess.run(["ip", "netns", "del", f"{self._tag}-{node}"], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", f"{self._tag}br"], capture_output=True, check=False)

    def cut(self, source: int, target: int) -> None:
        """What `source` sends does not arrive at `target` any more."""
        self._cut.add((source, target))
        self._apply(target)

    def heal(self, source: int, target: int) -> None:
        """Let it through again."""
        self._cut.discard((source, target))
        self._apply(target)

    def delay(self, node: int, low_ms: float, high_ms: float) -> None:
        """What the node sends to others, and their answers, arrive so late from now on."""
        pipe = self._proxies[node].stdin
        assert pipe is not None
        pipe.write(f"{low_ms} {high_ms}\n".encode())
        pipe.flush()

    def _proxy(self, node: int) -> None:
        """Start its proxy, and turn the node's connections to it."""
        command = [*self.inside(node), sys.executable, "-m", "tests.chaos.proxy", str(node)]
        process = self._proxies[node] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout is not None
        if not process.stdout.readline():
            raise OttlaError(f"the proxy of node {node} ended with {process.wait()}")
        others = ", ".join(self.address(each) for each in self.nodes if each != node)
        chain = f"add chain ip {_TABLE} leaves {{ type nat hook output priority -100; }}"
        turned = f"ip daddr {{ {others} }} ip protocol tcp meta mark != {MARK} redirect to :{PORT}"
        _run(*self.inside(node), "nft", f"{chain}; add rule ip {_TABLE} leaves {turned}")

    def _apply(self, target: int) -> None:
        rules = [f"flush chain ip {_TABLE} arrives"]
        rules += [
            f"add rule ip {_TABLE} arrives ip saddr {self.address(source)} drop"
            for source, at in sorted(self._cut)
            if at == target
        ]
        _run(*self.inside(target), "nft", "; ".join(rules))


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise OttlaError(f"{command[0]} is not installed (Debian: apt-get install iproute2 nftables)") from None
    if done.returncode:
        raise OttlaError(f"{' '.join(command)}: {done.stderr.strip()} (namespaces need root)")
