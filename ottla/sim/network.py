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
_LATENCIES = _LATENCY_US[1] - _LATENCY_US[0]
_LATENCY_BITS = _LATENCIES.bit_length()
#: The delay of TCP's retransmission (RFC 6298's minimum timeout and its doublings).
_RETRY_US = (200_000, 1_600_000)
_PORT_FIRST = 32_768


class Link:
    """The link from one host to another. `slow_us` is added to every latency."""

    __slots__ = ("_world", "held", "is_cut", "is_loopback", "label", "slow_us")

    def __init__(self, world: World, source: Host, target: Host) -> None:
        self._world = world
        self.label = f"{source.name}>{target.name}"
        self.is_loopback = source is target
        self.is_cut = False
        self.slow_us = 0
        #: Deliveries that wait for the link to heal, in order.
        self.held: list[tuple[SimSocket | None, Callable[[], object]]] = []

    def send(self, sock: SimSocket | None, action: Callable[[], object], delay_us: int = 0) -> None:
        """Deliver `action` at the other end, in order with everything else that `sock` sends."""
        if self.is_cut:
            self.held.append((sock, action))
            return
        world = self._world
        when_us = world.now_us + delay_us
        if self.is_loopback:
            when_us += 5
        else:
            # `World.between(*_LATENCY_US)`, for each segment.
            draw = world.draw
            latency_us = draw(_LATENCY_BITS)
            while latency_us >= _LATENCIES:
                latency_us = draw(_LATENCY_BITS)
            when_us += _LATENCY_US[0] + latency_us + self.slow_us
        if sock is not None:
            if when_us <= sock.arrives_us:
                when_us = sock.arrives_us + 1
            sock.arrives_us = when_us

        def arrive() -> None:
            # The link was cut in the meantime: the segment is lost and will be retransmitted.
            if self.is_cut:
                self.held.append((sock, action))
            else:
                action()

        world.at(when_us, arrive, self.label)

    def probe(self, action: Callable[[], object]) -> None:
        """Deliver a segment that is not retransmitted: a cut link loses it."""
        if not self.is_cut:
            self._world.after(_LATENCY_US[1] + self.slow_us, action, f"{self.label} keepalive")


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
            found = self._links[source.address, target.address] = Link(self._world, source, target)
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
                link.send(sock, action, delay_us)

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
