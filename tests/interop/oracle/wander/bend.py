"""An encoded request made wrong: what a step's `$bent` says is done to its bytes."""

import struct

from ottla.wire.api import API
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


def is_text(data: bytes, key: int, version: int) -> bool:
    """Are all texts of this framed request UTF-8, as far as our decoder gets?"""
    size = struct.unpack_from(">h", data, 12)[0]
    try:
        decode(API[key].request, version, data, 14 + size + (request_header_version(key, version) == 2))
    except Malformed as error:
        return "codec can't decode" not in str(error)
    return True
