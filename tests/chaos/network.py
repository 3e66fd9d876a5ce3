"""A network of this machine: a bridge, and for each node a namespace with an address of its own.

Rules:
- Packets are dropped where they arrive, silently, as on a broken wire: nobody is told that the other is out of reach.
- Everything bears a name of this run and is removed at its end.
"""

from __future__ import annotations

import os
import subprocess
from types import TracebackType
from typing import Self

from ottla.kernel.error import OttlaError

_TABLE = "chaos"


class Network:
    """Namespaces 1 to `count`; this process is at the bridge and reaches all of them."""

    def __init__(self, count: int) -> None:
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
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
