"""An encoded request made wrong: what a step's `$bent` says is done to its bytes."""

import struct

from ottla.wire.api import API, ApiKey
from ottla.wire.compile import decode
from ottla.wire.header import request_header_version
from ottla.wire.type import Malformed
from tests.interop.oracle.wander.history import Values


def bend(data: bytes, how: Values, key: int, version: int) -> bytes:
    """A framed request made wrong. Places count from the end of the header, and go round."""
    head = bytearray(data[4:])
    if "version" in how:
        head[2:4] = struct.pack(">h", how["version"])
    if "key" in how:
        head[0:2] = struct.pack(">h", how["key"])
    size = struct.unpack_from(">h", head, 8)[0]
    start = 10 + size + (request_header_version(key, version) == 2)
    body = head[start:]
    for where, other in how.get("at", ()):
        put = bytes.fromhex(other)
        at = where % max(1, len(body))
        body[at : at + len(put)] = put
    for where, other in how.get("in", ()):
        at = where % max(1, len(body))
        body[at:at] = bytes.fromhex(other)
    body = body[: max(0, len(body) - how.get("cut", 0))] + bytes.fromhex(how.get("more", ""))
    made = bytes(head[:start] + body)
    return struct.pack(">i", len(made) + how.get("length", 0)) + made


def asked(data: bytes) -> tuple[int, int] | None:
    """The API and version that a framed request names, if there are such."""
    key, version = struct.unpack_from(">hh", data, 4)
    return (key, version) if key in API and version in API[ApiKey(key)].versions else None


def may_be_sent(data: bytes) -> bool:
    """Is it no matter of decision 0011: text that is not UTF-8, tagged fields that cannot be?"""
    named = asked(data)
    if named is None:
        return True
    key, version = named
    size = struct.unpack_from(">h", data, 12)[0]
    try:
        decode(API[ApiKey(key)].request, version, data, 14 + size + (request_header_version(key, version) == 2))
    except Malformed as error:
        return not any(words in str(error) for words in ("codec can't decode", "tagged field"))
    return True
