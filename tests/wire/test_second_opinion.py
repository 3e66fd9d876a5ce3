"""Two other codecs read what we write, and write what we read: kio (every API) and kafka-python (those of clients).

Rule of theirs that our values keep to: kio makes error codes an enumeration, durations and timestamps Python's own.
"""

import importlib
import json
import re
import warnings
from importlib.resources import files
from io import BytesIO
from random import Random
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from ottla.wire.api import API, Api, ApiKey
from ottla.wire.compile import decode, encode
from ottla.wire.schema import WireField
from tests.wire.definition import CHANGED_SINCE_4_3_1, differences
from tests.wire.value import classes, message

_ERRORS = [int(code) for code in ErrorCode]
_APIS = [api for api in API.values() if api.versions]


def _modest(field: WireField, rng: Random) -> Any:
    """Values that every codec has a type for."""
    if field.is_array or field.struct is not None:
        return None
    if field.name.endswith("error_code"):
        return rng.choice(_ERRORS)
    if field.type.startswith(("Int", "Uint")):
        return rng.randrange(1, 120)
    if field.type == "String":
        return rng.choice(("a", "flights", "caf\u00e9"))
    if field.type == "Records":
        return rng.randbytes(30)
    return None


def _ours(api: Api) -> list[tuple[Any, int, bool]]:
    return [(cls, version, cls is api.request) for version in api.versions for cls in (api.request, api.response)]


@pytest.mark.parametrize("api", _APIS, ids=lambda api: api.name)
def test_kio_reads_and_writes_the_same_bytes(api: Api) -> None:
    for cls, version, is_request in _ours(api):
        theirs: Any = (load_request_schema if is_request else load_response_schema)(api.key, version)
        read, write = entity_reader(theirs), entity_writer(theirs)
        for seed in range(3):
            made = message(cls, version, Random(f"{cls.__name__} {version} {seed}"), override=_modest)
            data = encode(made, version)
            entity, size = read(data, 0)
            assert size == len(data), (cls, version)
            out = BytesIO()
            write(out, entity)
            assert out.getvalue() == data, (cls, version, made)
            assert decode(cls, version, out.getvalue())[0] == made


def _kafka_python() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of how it reads its own files
        for name in ("admin", "consumer", "metadata", "producer", "sasl"):
            importlib.import_module(f"kafka.protocol.{name}")
    root = importlib.import_module("kafka.protocol.api_message").ApiMessage
    found: dict[str, Any] = {}
    waiting = [root]
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        if re.fullmatch(r"\w+(Request|Response)", cls.__name__) and cls.__module__.startswith("kafka.protocol."):
            found[cls.__name__] = cls
    return found


_THEIRS = _kafka_python()


def test_kafka_python_knows_most_of_what_clients_ask() -> None:
    assert len([api for api in _APIS if f"{api.name}Request" in _THEIRS]) >= 50


@pytest.mark.parametrize("api", [api for api in _APIS if f"{api.name}Request" in _THEIRS], ids=lambda api: api.name)
def test_kafka_python_reads_and_writes_the_same_bytes(api: Api) -> None:
    for cls, version, _ in _ours(api):
        theirs = _THEIRS[cls.__name__]
        for seed in range(3):
            made = message(cls, version, Random(f"{cls.__name__} {version} {seed}"), override=_modest)
            if cls is API[ApiKey.API_VERSIONS].response:
                made.error_code = 0  # any other makes kafka-python read version 0 (KIP-511)
            data = encode(made, version)
            entity = theirs.decode(data, version=version)
            entity._header = None  # which its decoder leaves out and its encoder looks at
            again = entity.encode(version=version)
            assert bytes(again) == data, (cls, version, made)
            assert decode(cls, version, again)[0] == made


def test_the_definitions_that_kafka_python_carries_are_ours() -> None:
    """They are Apache's JSON files; the jars' own are compared in test_schema_jar."""
    ours, wrong, count = classes(), [], 0
    for file in files("kafka.protocol.schemas.resources").iterdir():
        if not file.name.endswith(".json"):
            continue
        definition = json.loads(re.sub(r"(?m)^\s*//.*$", "", file.read_text()))
        if definition["validVersions"] != "none" and definition["name"] in ours:
            wrong += differences(ours[definition["name"]], definition, whole=False)
            count += 1
    changed = {each.partition(":")[0] for each in wrong}
    assert changed == CHANGED_SINCE_4_3_1 & changed, "\n".join(wrong)
    assert count > 100
