"""A history: requests as data, with references to what a server answered before.

In a step's values:
    "~name"                                   a name that only this run of the history has
    {"$": "p.id", "plus": 1, "or": -1}        what a reply left under `p.id`, moved, or this while there is nothing;
                                              with "least", no less than that
    {"$bytes": "00ff"}                        bytes
    {"$batch": {"count": 2, ...}}             a record batch (`batch` says what it takes)
    {"$subscription": ["~t"]}                 what a consumer of these topics says when it joins a classic group
    {"$assignment": {"~t": [0, 1]}}           what its leader gives it

A request with a `$bent` beside its fields is sent with wrong bytes (`bend.py`).

Fields that the version of the request does not have are left out, so one template serves all versions.
"""

import json
import struct
from dataclasses import dataclass, field
from typing import Any

from ottla.wire.batch import NewRecord, build
from ottla.wire.codec import Codec
from ottla.wire.schema import Struct, fields
from tests.interop.scene import NOW_MS

Values = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """One request. `keep` says what of its reply is kept: name -> (path in the reply, errors that do not matter).

    What begins with `=` is no path: `=2` is the value 2, `=+2` adds 2 to the value there was.
    """

    api: str
    version: int
    values: Values
    on: int = 0
    keep: dict[str, list[Any]] = field(default_factory=dict)

    def __str__(self) -> str:
        kept = f" keep {json.dumps(self.keep)}" if self.keep else ""
        return f"{self.api} v{self.version} on {self.on} {json.dumps(self.values)}{kept}"


def dump(steps: list[Step]) -> str:
    """One step a line."""
    lines = [json.dumps([one.api, one.version, one.on, one.values, one.keep]) for one in steps]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def load(text: str) -> list[Step]:
    return [Step(api, version, values, on, keep) for api, version, on, values, keep in json.loads(text)]


def ref(name: str, otherwise: Any = -1, plus: int = 0) -> dict[str, Any]:
    return {"$": name, "or": otherwise, **({"plus": plus} if plus else {})}


def expand(value: Any, known: dict[str, Any], prefix: str) -> Any:
    """The values with names, references, bytes and batches put in."""
    if isinstance(value, str):
        return prefix + value[1:] if value.startswith("~") else value
    if isinstance(value, list):
        return [expand(one, known, prefix) for one in value]
    if not isinstance(value, dict):
        return value
    if "$" in value:
        found = known.get(value["$"])
        if found is None:
            found = expand(value["or"], known, prefix)
        moved = found + value["plus"] if "plus" in value and isinstance(found, int) else found
        return max(moved, value["least"]) if "least" in value else moved
    if "$bytes" in value:
        return bytes.fromhex(value["$bytes"])
    if "$batch" in value:
        return batch(**expand(value["$batch"], known, prefix))
    if "$subscription" in value:
        topics = b"".join(_text(expand(name, known, prefix)) for name in value["$subscription"])
        # Version 1: the topics, no user data, nothing owned.
        return struct.pack(">hi", 1, len(value["$subscription"])) + topics + struct.pack(">ii", -1, 0)
    if "$assignment" in value:
        parts = [
            _text(expand(name, known, prefix)) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
            for name, numbers in value["$assignment"].items()
        ]
        return struct.pack(">hi", 1, len(parts)) + b"".join(parts) + struct.pack(">i", -1)
    return {name: expand(one, known, prefix) for name, one in value.items()}


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def batch(
    count: int = 1,
    start: int = 0,
    codec: int = 0,
    null_key: bool = False,
    size: int = 5,
    bend: list[list[int]] | None = None,
    cut: int = 0,
    times: int = 1,
    **how: Any,
) -> bytes:
    """A batch of `count` records from `start` ms after now; `bend` xors bytes, `cut` drops the last ones."""
    records: list[NewRecord] = [
        (NOW_MS + start + n if start > -1_000_000_000_000 else -1, None if null_key else b"key-%d" % n, b"v" * size, [])
        for n in range(count)
    ]
    if "producer_epoch" in how:
        how["producer_epoch"] = (how["producer_epoch"] + 32768) % 65536 - 32768
    data = bytearray(build(records, codec=Codec(codec), **how))
    for where, bits in bend or ():
        data[where % len(data)] ^= bits
    return bytes(data[: len(data) - cut]) * times


def request(cls: type[Any], values: Values, version: int) -> Any:
    """A message of this version; fields that the version does not have are left out."""
    made = {}
    types = {one.name: one for one in fields(cls)}
    for name, value in values.items():
        if name == "$bent":
            continue
        if name == "topic_id" and name not in types:
            continue  # names and ids are given together, for whichever is taken
        kind = types[name]
        if version not in kind.versions:
            continue
        if value is None and not kind.is_nullable(version):
            continue
        if kind.struct is not None and isinstance(value, list):
            value = [request(kind.struct, one, version) for one in value]
        elif kind.struct is not None and isinstance(value, dict):
            value = request(kind.struct, value, version)
        made[name] = bounded(kind.type, value)
    return cls(**made)


def bounded(kind: str, value: Any) -> Any:
    """Numbers that outgrew their field, as a client would send them."""
    if not kind.startswith("Int") or isinstance(value, (list, Struct)) or value is None:
        return value
    half = 1 << int(kind[3:]) - 1
    return (value + half) % (2 * half) - half


def codes(reply: Any) -> set[int]:
    """All error codes in a reply."""
    found: set[int] = set()
    for one in fields(type(reply)):
        value = getattr(reply, one.name)
        if one.name.endswith("error_code"):
            found.add(value)
        elif isinstance(value, list):
            found |= {code for each in value if isinstance(each, Struct) for code in codes(each)}
    return found


def pick(reply: Any, path: str) -> Any:
    """What stands at a path like `topics.0.topic_id`; None where the path ends early."""
    for part in path.split("."):
        if isinstance(reply, list):
            reply = reply[int(part)] if int(part) < len(reply) else None
        else:
            reply = getattr(reply, part, None)
        if reply is None:
            return None
    return reply


def learn(known: dict[str, Any], step: Step, reply: Any) -> None:
    """Keep of a reply what the step wants."""
    found = codes(reply)
    for name, (path, *fine) in step.keep.items():
        if found - {0, *fine}:
            continue
        if path.startswith("="):
            known[name] = int(path[1:]) + (known.get(name, 0) if path[1] == "+" else 0)
            continue
        value = pick(reply, path)
        if value is not None and value != bytes(16):
            known[name] = _data(value)


def _data(value: Any) -> Any:
    """What a reply says as a request may say it."""
    if isinstance(value, list):
        return [_data(one) for one in value]
    if isinstance(value, Struct):
        return {one.name: _data(getattr(value, one.name)) for one in fields(type(value))}
    return value
