"""Scenes: a program, then inputs with what comes out of each, as text that a person reads and that can be rewritten.

    == the reducer's null deletes
    s = stream topic=in
    g = group_by_key on=s
    t = reduce on=g f=concat store=st
    o = to_stream on=t
    to on=o topic=out
    --
    in k=1@5              -> k=1@5
    in k=D@7 h=x          -> k=~@7 {h=x}
    wall 1000             -> .

`~` is null, `.` is nothing, `!` an error. A windowed key is `k[start,end]`. Outputs to topics other than `out` begin
with `topic:`. `show` in a line of its own says how outputs are read: `show out long`, `show out string time:10`.
Internal topics are shown only so: `show app-st-changelog string window`.
`config name=value` sets a setting. OTTLA_REWRITE=1 writes what our engine gives into the files (tests/streams) or what
Kafka Streams gives (tests/interop/test_streams_engine.py).
"""

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ottla.flow.record import Output
from ottla.kernel.error import OttlaError
from ottla.streams import TestDriver
from tests.streams.program import UNTHROTTLED, build

SCENES = Path(__file__).parent / "scenes"
_INPUT = re.compile(r"(\w+) (\S*?)=(\S*)@(\d+)((?: \w+=\w+)*)")


@dataclass
class Scene:
    """One program with its steps; `lines` are those of the inputs."""

    title: str
    program: list[dict[str, str]] = field(default_factory=list)
    config: dict[str, str] = field(default_factory=lambda: dict(UNTHROTTLED))
    shown: dict[str, list[str]] = field(default_factory=dict)
    head: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)

    def steps(self) -> list[dict[str, Any]]:
        """The inputs as data."""
        return [step(each) for each in self.inputs]

    def text(self, outputs: Sequence[str]) -> str:
        """The scene with other outputs."""
        width = max((len(each) for each in self.inputs), default=0)
        lines = [f"{left:<{width}} -> {right}" for left, right in zip(self.inputs, outputs, strict=True)]
        return "\n".join([f"== {self.title}", *self.head, "--", *lines]) + "\n"


def step(text: str) -> dict[str, Any]:
    """`in k=v@5 h=x` or `wall 1000`."""
    if text.startswith("wall "):
        return {"wall": int(text[5:])}
    match = _INPUT.fullmatch(text)
    assert match, text
    topic, key, value, timestamp, headers = match.groups()
    named = [each.split("=") for each in headers.split()]
    nulls = [None if each == "~" else each for each in (key, value)]
    return {"topic": topic, "key": nulls[0], "value": nulls[1], "timestamp": int(timestamp), "headers": named}


def read(path: Path) -> list[Scene]:
    """The scenes of a file."""
    scenes: list[Scene] = []
    body = False
    for line in path.read_text().splitlines():
        if line.startswith("== "):
            scenes.append(Scene(line[3:]))
            body = False
        elif line == "--":
            body = True
        elif not line.strip():
            continue
        elif body:
            left, _, right = line.partition("->")
            scenes[-1].inputs.append(left.strip())
            scenes[-1].outputs.append(right.strip())
        else:
            scenes[-1].head.append(line)
            _declare(scenes[-1], line)
    return scenes


def _declare(scene: Scene, line: str) -> None:
    if line.startswith("#"):
        return
    words = line.split()
    if words[0] == "show":
        scene.shown[words[1]] = words[2:]
    elif words[0] == "config":
        name, _, value = words[1].partition("=")
        scene.config[name] = value
    else:
        statement = {}
        if len(words) > 1 and words[1] == "=":
            statement["id"] = words[0]
            words = words[2:]
        statement["op"] = words[0]
        statement |= dict(word.split("=", 1) for word in words[1:])
        scene.program.append(statement)


#: (key, value, timestamp, headers) in bytes.
Raw = tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]


def show(scene: Scene, outputs: Mapping[str, Sequence[Raw]], error: bool) -> str:
    """What came out of one step, topics in the order of their names."""
    texts = []
    for topic in sorted(outputs):
        if topic.startswith("app-") and topic not in scene.shown:
            continue
        value_kind, key_kind = (
            [*scene.shown.get(topic, []), "string", "string"][:2] if topic in scene.shown else ("string",) * 2
        )
        for key, value, timestamp, headers in outputs[topic]:
            named = "".join(f" {{{name}={(content or b'').decode()}}}" for name, content in headers)
            prefix = "" if topic == "out" else f"{topic}:"
            texts.append(f"{prefix}{_shown(key, key_kind)}={_shown(value, value_kind)}@{timestamp}{named}")
    if error:
        texts.append("!")
    return " ".join(texts) or "."


def _shown(data: bytes | None, kind: str) -> str:
    if data is None:
        return "~"
    name, _, size = kind.partition(":")
    if name == "pair":
        # The key of a subscription: the length of the foreign key, the foreign key, the key.
        at = 4 + int.from_bytes(data[:4], "big")
        return f"{data[4:at].decode()}|{data[at:].decode()}"
    if name == "wrapper":
        # A subscription: version, instruction, a hash of 16 bytes (which is not Kafka Streams'), key, partition.
        return f"{data[0]}/{data[1]}/{data[18:-4].decode()}/{int.from_bytes(data[-4:], 'big')}"
    if name == "long":
        return str(struct.unpack(">q", data)[0])
    if name == "time":
        start = int.from_bytes(data[-8:], "big")
        return f"{data[:-8].decode()}[{start},{start + int(size)}]"
    if name == "window":
        return f"{data[:-12].decode()}[{int.from_bytes(data[-12:-4], 'big')}]#{int.from_bytes(data[-4:], 'big')}"
    if name == "session":
        return f"{data[:-16].decode()}[{int.from_bytes(data[-8:], 'big')},{int.from_bytes(data[-16:-8], 'big')}]"
    return data.decode()


def play(scene: Scene) -> list[str]:
    """What our engine gives for each input."""
    return [
        show(scene, outputs, error is not None) for outputs, error in run(scene.program, scene.config, scene.steps())
    ]


def run(
    program: Sequence[Mapping[str, str]], config: Mapping[str, str], steps: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[dict[str, list[Raw]], Exception | None]]:
    """For each step the outputs by topic, internal topics included, and the error."""
    driver = TestDriver(build(program, config), changelog=True)
    for each in steps:
        error = None
        try:
            if "wall" in each:
                driver.advance_wall_clock(each["wall"])
            else:
                key, value = (None if part is None else part.encode() for part in (each["key"], each["value"]))
                headers = tuple((name, content.encode()) for name, content in each.get("headers", ()))
                driver.pipe(each["topic"], key, value, each["timestamp"], headers)
        except (OttlaError, TypeError, ValueError) as caught:
            error = caught
        yield {topic: [_raw(output) for output in records] for topic, records in driver.take_produced().items()}, error


def _raw(output: Output) -> Raw:
    return output.key, output.value, output.timestamp, output.headers
