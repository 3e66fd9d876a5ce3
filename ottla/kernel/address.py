"""IP addresses as text, in one form each: limits and rules compare them as text."""

from __future__ import annotations

_MAPPED = "::ffff:"


def plain_address(address: str) -> str:
    """The address of a socket's peer: 10.0.0.7 for ::ffff:10.0.0.7, an IPv4 client at an IPv6 listener."""
    return address[len(_MAPPED) :] if address.startswith(_MAPPED) and "." in address else address


def canonical_address(text: str) -> str:
    """The form that `plain_address` has for an address that a person wrote. ValueError if it is no address."""
    from ipaddress import IPv6Address, ip_address

    address = ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def java_address(address: str) -> str:
    """An address in the form of Java's getHostAddress, which ACLs use: 0:0:0:0:0:0:0:1. ValueError if it is none."""
    if ":" not in address:
        return address
    from ipaddress import IPv6Address

    packed = IPv6Address(address.partition("%")[0])
    if packed.ipv4_mapped is not None:
        return str(packed.ipv4_mapped)
    return ":".join(f"{int(each, 16):x}" for each in packed.exploded.split(":"))
