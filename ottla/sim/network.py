"""The simulated network: links between hosts, and the behaviour of TCP that programs can observe.

Rules:
- The bytes of one direction of a connection arrive in order; different connections may overtake each other.
- A cut link loses nothing of a connection that outlives the cut: TCP retransmits, so held bytes arrive after the link
  heals. A cut is one-way: `cut(a, b)` holds what a sends to b, including acknowledgements of the other direction.
- A host without power is silent; when it is back, it answers the first segment that reaches it by a reset.
- A connection buffers at most `WINDOW_BYTES` that its reader has not taken.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.sim.host import Host
    from ottla.sim.socket import SimSocket
    from ottla.sim.world import World

WINDOW_BYTES = 1 << 18
#: The one-way latency within a data centre.
_LATENCY_US = (40, 400)
#: The delay of TCP's retransmission (RFC 6298's minimum timeout and its doublings).
_RETRY_US = (200_000, 1_600_000)
_PORT_FIRST = 32_768


class Link:
    """The link from one host to another. `slow_us` is added to every latency."""

    __slots__ = ("held", "is_cut", "is_loopback", "label", "slow_us")

    def __init__(self, source: Host, target: Host) -> None:
        self.label = f"{source.name}>{target.name}"
        self.is_loopback = source is target
        self.is_cut = False
        self.slow_us = 0
        #: Deliveries that wait for the link to heal, in order.
        self.held: list[tuple[SimSocket | None, Callable[[], object]]] = []


class Network:
    """All links and listening sockets. `World.network`."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: The host whose program is running.
        self.current: Host | None = None
        self._links: dict[tuple[str, str], Link] = {}
        self._listening: dict[tuple[str, int], SimSocket] = {}
        self._port = _PORT_FIRST

    # ---- faults

    def link(self, source: Host, target: Host) -> Link:
        found = self._links.get((source.address, target.address))
        if found is None:
            found = self._links[source.address, target.address] = Link(source, target)
        return found

    def cut(self, source: Host, target: Host) -> None:
        """Hold everything that `source` sends to `target`."""
        self.link(source, target).is_cut = True

    def heal(self, source: Host, target: Host) -> None:
        link = self.link(source, target)
        link.is_cut = False
        held, link.held = link.held, []
        if held:
            # All connections of the link share a retransmission delay.
            delay_us = self._world.rng.randrange(*_RETRY_US)
            for sock, action in held:
                self._deliver(link, sock, action, delay_us)

    def isolate(self, host: Host) -> None:
        """Cut this host off from all others, in both directions."""
        for other in self._world.hosts:
            if other is not host:
                self.cut(host, other)
                self.cut(other, host)

    def heal_all(self) -> None:
        for source in self._world.hosts:
            for target in self._world.hosts:
                if source is not target:
                    self.heal(source, target)

    def slow(self, source: Host, target: Host, added_us: int) -> None:
        """Add `added_us` to the latency from `source` to `target`."""
        self.link(source, target).slow_us = added_us

    # ---- for sockets

    def new_port(self) -> int:
        self._port += 1
        return self._port

    def listen(self, sock: SimSocket, address: tuple[str, int]) -> None:
        if address in self._listening:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        self._listening[address] = sock

    def unlisten(self, address: tuple[str, int]) -> None:
        self._listening.pop(address, None)

    def listener(self, address: tuple[str, int]) -> SimSocket | None:
        return self._listening.get(address)

    def host_of(self, address: str) -> Host | None:
        return next((each for each in self._world.hosts if each.address == address), None)

    def send(self, link: Link, sock: SimSocket | None, action: Callable[[], object]) -> None:
        """Deliver `action` at the other end, in order with everything else that `sock` sends."""
        if link.is_cut:
            link.held.append((sock, action))
        else:
            self._deliver(link, sock, action, 0)

    def probe(self, link: Link, action: Callable[[], object]) -> None:
        """Deliver a segment that is not retransmitted: a cut link loses it."""
        if not link.is_cut:
            self._world.after(_LATENCY_US[1] + link.slow_us, action, f"{link.label} keepalive")

    def _deliver(self, link: Link, sock: SimSocket | None, action: Callable[[], object], delay_us: int) -> None:
        world = self._world
        when_us = world.now_us + delay_us
        if link.is_loopback:
            when_us += 5
        else:
            when_us += world.between(*_LATENCY_US) + link.slow_us
        if sock is not None:
            if when_us <= sock.arrives_us:
                when_us = sock.arrives_us + 1
            sock.arrives_us = when_us

        def arrive() -> None:
            # The link was cut in the meantime: the segment is lost and will be retransmitted.
            if link.is_cut:
                link.held.append((sock, action))
            else:
                action()

        world.at(when_us, arrive, link.label)
