"""One of the two servers as a history sees it: lines to it, what it answered, and that made plain for comparison.

Made plain: ids by their order of appearance, moments as the word "time", batches as what is in them, and lists whose
order says nothing (Apache keeps them in hash maps) in one order.
"""

import re
import select
import struct
from base64 import urlsafe_b64encode
from typing import Any

from ottla.wire.api import API
from ottla.wire.api.describe_client_quotas import DescribeClientQuotasResponse
from ottla.wire.api.describe_user_scram_credentials import DescribeUserScramCredentialsResponse
from ottla.wire.api.list_groups import ListGroupsResponse
from ottla.wire.api.metadata import MetadataResponse
from ottla.wire.batch import read
from ottla.wire.compile import decode
from ottla.wire.header import ResponseHeader, response_header_version
from ottla.wire.schema import Struct, fields
from ottla.wire.type import Malformed
from tests.interop.oracle.side import CLOSED, IDS, ORDERED, TIMES, Connection, frame, key_of
from tests.interop.oracle.wander.bend import asked, bend
from tests.interop.oracle.wander.history import Values
from tests.interop.scene import NOW_MS
from tests.interop.server import Server

SILENCE = "silence"
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
#: The same, as Kafka writes it in the newer protocols.
_UUID_TEXT = re.compile(r"[A-Za-z0-9_-]{22}")
#: More users than any step asks for by name: all of them, and those of other histories too.
_ASKED_MAX = 3
_NOTHING = (None, 0, "", bytes(16))
_NO_PRODUCER = (None, -1)
#: Ids of a member are texts, in which the part that the server makes is a UUID.
_KINDS = {name: kind for name, kind in IDS.items() if kind != "member"}
_LATER = {*TIMES, "throttle_time_ms", "finalized_features_epoch"}
#: What differs from server to server, or is for people: a list is not sorted by it.
_UNSORTED = {"records", "port", "total_bytes", "usable_bytes", "error_message", "batch_index_error_message"}


class Line(Connection):
    """A connection with at most one request under way."""

    def __init__(self, port: int, client_id: str) -> None:
        super().__init__(port)
        self._client_id = client_id
        self._asked: tuple[int, int] | None = None

    @property
    def busy(self) -> bool:
        return self._asked is not None

    def put(self, request: Any, version: int, bent: Values | None = None) -> None:
        """Send a request, made wrong as `bent` says."""
        self._next += 1
        self._asked = (key_of(request), version)
        data = frame(request, version, self._next, client_id=self._client_id)
        if bent is not None:
            data = bend(data, bent, *self._asked)
            self._asked = asked(data) or self._asked
        self.send(data)

    def ready(self, timeout_s: float) -> bool:
        """Is there something to read within this time?"""
        return bool(select.select([self._socket], [], [], timeout_s)[0])

    def take(self) -> Any:
        """The response to what was put, or CLOSED."""
        assert self._asked is not None
        (key, version), self._asked = self._asked, None
        try:
            body = self.reply()
        except (ConnectionError, struct.error):
            body = None
        if body is None:
            return CLOSED
        try:
            _, position = decode(ResponseHeader, response_header_version(key, version), body)
            response, end = decode(API[key].response, version, body, position)
        except Malformed:
            # The answer to a request whose version or API was bent.
            return f"{len(body)} bytes"
        return response if end == len(body) else f"{len(body) - end} bytes after the response"


class Place:
    """A server within one history."""

    def __init__(self, server: Server, prefix: str) -> None:
        self.server, self.prefix = server, prefix
        #: what references look up
        self.known: dict[str, Any] = {}
        self._lines: dict[int, Line] = {}
        self._ids: dict[str, dict[Any, str]] = {}
        self._uuids: dict[str, str] = {}
        self._topics: dict[str, str] = {}

    def line(self, number: int) -> Line:
        if number not in self._lines:
            self._lines[number] = Line(self.server.port, f"client-{number}")
        return self._lines[number]

    def ask(self, request: Any, version: int, number: int = -1) -> Any:
        line = self.line(number)
        line.put(request, version)
        if not line.ready(10):
            self.drop(number)
            return SILENCE
        reply = line.take()
        if reply == CLOSED:
            self.drop(number)
        return reply

    def drop(self, number: int) -> None:
        if number in self._lines:
            self._lines.pop(number).close()

    def close(self) -> None:
        for number in list(self._lines):
            self.drop(number)

    def plain(self, reply: Any, version: int) -> Any:
        if isinstance(reply, Struct):
            self._leave_out(reply)
        return self._plain(reply, version, "") if isinstance(reply, Struct) else reply

    def _leave_out(self, reply: Any) -> None:
        """What other histories have, where all was asked for."""
        mine = self.prefix
        match reply:
            case ListGroupsResponse():
                reply.groups = [one for one in reply.groups if one.group_id.startswith(mine)]
            case MetadataResponse() if any(one.is_internal for one in reply.topics):
                reply.topics = [one for one in reply.topics if (one.name or "").startswith(mine)]
            case DescribeUserScramCredentialsResponse() if len(reply.results) > _ASKED_MAX:
                reply.results = [one for one in reply.results if one.user.startswith(mine)]
            case DescribeClientQuotasResponse() if reply.entries is not None:
                names = [[part.entity_name or "" for part in one.entity] for one in reply.entries]
                reply.entries = [
                    one
                    for one, each in zip(reply.entries, names, strict=True)
                    if not any(name.startswith("w") and not name.startswith(mine) for name in each)
                ]

    def _plain(self, value: Any, version: int, name: str) -> Any:
        if isinstance(value, Struct):
            there = [field.name for field in fields(type(value)) if version in field.versions]
            return {each: self._plain(getattr(value, each), version, each) for each in there}
        if isinstance(value, list):
            if name not in ORDERED:
                value = sorted(value, key=_blank)
            said = _joined([self._plain(each, version, name.removesuffix("s")) for each in value])
            return said if name in ORDERED else sorted(said, key=str)
        if name == "records" and value is not None:
            return [self._batch(one) for one in read(value)]
        if name in _KINDS and value not in (_NO_PRODUCER if name == "producer_id" else _NOTHING):
            return self._symbol(_KINDS[name], value)
        if (name in _LATER and value > 0) or (name == "timestamp" and 1000 < value - NOW_MS < 3_600_000):
            return "time"
        if name in ("total_bytes", "usable_bytes") and value > 0:
            return "bytes"
        if name == "port" and value == self.server.port:
            return "port"
        if name == "documentation" and value:
            return "words"
        if isinstance(value, str):
            if name in ("member_id", "leader") and _UUID_TEXT.fullmatch(value):
                return self._uuids.setdefault(value, f"<{len(self._uuids) + 1}>")
            return self._text(value)
        if isinstance(value, (memoryview, bytes, bytearray)):
            return bytes(value).replace(self.prefix.encode(), b"~").hex()
        return value

    def _symbol(self, kind: str, value: Any) -> str:
        known = self._ids.setdefault(kind, {})
        if value not in known:
            known[value] = f"{kind} {len(known) + 1}"
            if isinstance(value, bytes):
                self._topics[urlsafe_b64encode(value).decode().rstrip("=")] = known[value]
        return known[value]

    def _batch(self, one: Any) -> dict[str, Any]:
        header = one.header
        said: dict[str, Any] = header._asdict()
        for name in ("crc", "length"):  # they follow from the rest
            del said[name]
        if header.producer_id >= 0:
            said["producer_id"] = self._symbol("producer", header.producer_id)
        made = header.is_control or header.is_log_append_time
        if made:
            said["base_timestamp"] = said["max_timestamp"] = "time"
        said["records"] = [
            (r.offset, "time" if made else r.timestamp, (r.key or b"").hex(), (r.value or b"").hex(), r.headers)
            for r in one.records()
        ]
        return said

    def _text(self, text: str) -> str:
        text = text.replace(self.prefix, "~").replace(str(self.server.directory), "directory")
        text = re.sub(r"/tmp/[-\w./]*/data\b", "directory/data", text)
        text = _UUID.sub(lambda found: self._uuids.setdefault(found[0], f"<{len(self._uuids) + 1}>"), text)
        for known, symbol in [*self._topics.items(), *self._uuids.items()]:
            text = text.replace(known, symbol)
        for known, symbol in self._ids.get("producer", {}).items():
            text = re.sub(rf"\b{known}\b", symbol, text)
        return re.sub(r"(?<=127\.0\.0\.1:)\d+", "port", text)


def _joined(parts: list[Any]) -> list[Any]:
    """Parts of the same topic as one: into how many pieces Apache puts its partitions depends on its maps."""
    made: dict[str, Any] = {}
    for part in parts:
        if not isinstance(part, dict) or not isinstance(part.get("partitions"), list):
            return parts
        topic = str({name: value for name, value in part.items() if name != "partitions"})
        if topic in made:
            made[topic]["partitions"] = sorted(made[topic]["partitions"] + part["partitions"], key=str)
        else:
            made[topic] = part
    return list(made.values())


def _blank(value: Any) -> str:
    """What a list is sorted by: its values without the ids that differ from server to server."""
    return _UUID.sub("", _shown(value, ""))


def _shown(value: Any, name: str) -> str:
    if isinstance(value, Struct):
        inner = [field.name for field in fields(type(value))]
        return "(" + ", ".join(_shown(getattr(value, each), each) for each in inner) + ")"
    if isinstance(value, list):
        return str(sorted(_shown(one, name.removesuffix("s")) for one in value))
    if name in _KINDS or name in _LATER or name in _UNSORTED:
        return ""
    if name in ("member_id", "leader") and isinstance(value, str) and _UUID_TEXT.fullmatch(value):
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value + (1 << 63):020}"
    return repr(value)
