"""Listeners: the addresses that a node listens on and advertises, from `NAME://host:port` and the protocol map.

Rules:
- Names are converted to upper case. Names are unique, and so are ports on one kind of address.
- Without a `listener.security.protocol.map`, each protocol's name maps to itself, and controller listeners are
  PLAINTEXT unless another listener uses TLS or SASL (KIP-1001).
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from ottla.kernel.address import canonical_address
from ottla.kernel.error import OttlaError
from ottla.kernel.named import NamedTuple
from ottla.kernel.validators import whole_number

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_ENTRY = re.compile(r"([^/:]+)://\[?([0-9a-zA-Z\-%._:]*?)\]?:(-?[0-9]+)")


class Listener(NamedTuple):
    """An address, NAME://host:port. An empty host means all addresses of the machine."""

    name: str
    host: str
    port: int
    security_protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class VoterAddress(NamedTuple):
    """A controller in a static quorum."""

    id: int
    host: str
    port: int


def parse_protocol_map(text: str, *, given: bool, names: Sequence[str], controllers: Sequence[str]) -> dict[str, str]:
    """Parse listener name -> protocol. `names` are the listeners in use; `given` is whether the file has a map."""
    key = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = entry.rpartition(":")
        if not colon or not name or protocol.strip().upper() not in PROTOCOLS:
            raise OttlaError(f"{key}: {entry!r} is not NAME:PROTOCOL; the protocols are {', '.join(PROTOCOLS)}")
        protocols[name.strip().upper()] = protocol.strip().upper()
    if not given and not any(name.upper() in PROTOCOLS[1:] for name in (*names, *controllers)):
        protocols.update((name.upper(), "PLAINTEXT") for name in controllers)
    return protocols


def listener_names(entries: Iterable[str]) -> list[str]:
    """Return the names in `NAME://host:port` entries, unchanged."""
    return [entry.partition(":")[0] for entry in entries]


def parse_listeners(
    key: str, entries: Sequence[str], protocols: Mapping[str, str], *, distinct_ports: bool
) -> tuple[Listener, ...]:
    """Parse listeners. Raise OttlaError with `key` and the invalid entry."""
    listeners = tuple(_parse(key, entry, protocols) for entry in entries)
    names = [listener.name for listener in listeners]
    for name in names:
        if names.count(name) > 1:
            raise OttlaError(f"{key}: two listeners are called {name}; give each a unique name")
    if distinct_ports:
        _check_ports(key, listeners)
    return listeners


def _parse(key: str, entry: str, protocols: Mapping[str, str]) -> Listener:
    match = _ENTRY.fullmatch(entry)
    port = None if match is None else whole_number(match[3], 17)
    if match is None or port is None or port < 0:
        raise OttlaError(f"{key}: {entry!r} is not NAME://host:port, for example PLAINTEXT://127.0.0.1:9092")
    name = match[1].upper()
    protocol = protocols.get(name)
    if protocol is None:
        raise OttlaError(
            f"{key}: the listener {name} has no protocol; add {name}:PLAINTEXT (or SSL, SASL_PLAINTEXT, SASL_SSL) to "
            f"listener.security.protocol.map"
        )
    return Listener(name, match[2], port, protocol)


def _check_ports(key: str, listeners: Sequence[Listener]) -> None:
    taken: dict[tuple[int, str], Listener] = {}
    for listener in listeners:
        if not listener.port:
            continue
        # A port may be used for IPv4 and IPv6, each with its own address.
        kind = "6" if ":" in listener.host else "4" if re.fullmatch(r"[0-9.]+", listener.host) else "all"
        for other in ("all",) if kind != "all" else ("4", "6"):
            if (listener.port, other) in taken:
                raise OttlaError(f"{key}: {taken[listener.port, other]} and {listener} share port {listener.port}")
        if (listener.port, kind) in taken:
            raise OttlaError(f"{key}: {taken[listener.port, kind]} and {listener} share port {listener.port}")
        taken[listener.port, kind] = listener


def parse_voters(entries: Iterable[str]) -> tuple[VoterAddress, ...]:
    """Parse the static quorum of `controller.quorum.voters`, whose form was checked before."""
    voters = []
    for entry in entries:
        identity, _, address = entry.rpartition("@")
        host, _, port = address.rpartition(":")
        voters.append(VoterAddress(int(identity), host.strip("[]"), int(port)))
    return tuple(voters)


def parse_connection_overrides(text: str) -> dict[str, int]:
    """Parse `max.connections.per.ip.overrides`: address in its canonical form -> count. Raise OttlaError."""
    overrides = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        address, _, digits = entry.rpartition(":")
        count = whole_number(digits.strip(), 32) if digits.strip().isdecimal() else None
        try:
            known = canonical_address(address.strip().strip("[]"))
        except ValueError:
            known = None
        if known is None or count is None:
            raise OttlaError(
                f"max.connections.per.ip.overrides: {entry} is not address:count (expected a numeric address, as in "
                "10.0.0.7:5; names are not resolved)"
            )
        overrides[known] = count
    return overrides
