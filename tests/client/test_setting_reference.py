"""The reference of settings and their types are what is declared.

`python -m tests.client.test_setting_reference` writes both again.
"""

import re
import typing
from pathlib import Path

import pytest

from ottla.client import OttlaError
from ottla.client.settings.reference import CLIENTS, explain, explained, reference
from ottla.client.settings.share import NOT_OF_SHARE_CONSUMERS
from ottla.settings.client.schema import DeclaredSettings

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs/reference/client-settings.md"
OPTIONS = ROOT / "ottla/client/settings/option.py"

HEAD = '''"""The types of the clients' settings as keyword arguments, for editors and type checkers only.

`python -m tests.client.test_setting_reference` generates this file from the declarations in this folder, and a test
compares the two. Numbers and booleans may also be text, as in Kafka's properties files.
docs/reference/client-settings.md explains each setting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypedDict

from ottla.client.settings.producer import Partitioner
from ottla.serde.serializer import Deserializer, Serializer
'''
TYPES = {
    "int": "int | str",
    "bool": "bool | str",
    "str": "str",
    "str | None": "str | None",
    "list[tuple[str, int]]": "str | Sequence[str]",
    "list[str]": "str | Sequence[str]",
    "tuple[str, ...]": "str | Sequence[str]",
    "Serializer | None": 'Serializer | Literal["bytes", "str", "json"] | None',
    "Deserializer | None": 'Deserializer | Literal["bytes", "str", "json"] | None',
    "Codec": "str",
    "Partitioner | str": 'Partitioner | Literal["default", "round_robin"]',
    "Any": "Any",
}


def annotations(kind: type[DeclaredSettings]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        found.update(vars(each).get("__annotations__", {}))
    return {name: found[name] for name in kind.declared}


def options() -> str:
    """The source of `ottla/client/settings/option.py`."""
    parts = [HEAD]
    of = {client: annotations(kind) for client, kind in CLIENTS.items()}
    of["share"] = {name: text for name, text in of["share"].items() if name not in NOT_OF_SHARE_CONSUMERS}
    shared = {name: text for name, text in of["admin"].items() if all(name in some for some in of.values())}
    classes = {"ClientOptions": shared}
    names = {"producer": "Producer", "consumer": "Consumer", "share": "ShareConsumer", "admin": "Admin"}
    for client, some in of.items():
        classes[f"{names[client]}Options"] = {name: text for name, text in some.items() if name not in shared}
    for name, some in classes.items():
        base = "TypedDict" if name == "ClientOptions" else "ClientOptions"
        client = name.removesuffix("Options")
        what = "Settings of all clients." if name == "ClientOptions" else f"Settings of `{client}` and `Async{client}`."
        parts.append(f'\n\nclass {name}({base}, total=False):\n    """{what}"""\n\n')
        parts.append("".join(f"    {one}: {TYPES[text]}\n" for one, text in sorted(some.items())))
    return "".join(parts)


def test_the_reference_is_what_is_declared() -> None:
    assert REFERENCE.read_text() == reference()


def test_the_types_are_what_is_declared() -> None:
    assert OPTIONS.read_text() == options()


def test_every_setting_says_what_it_takes_and_means() -> None:
    for one in explained():
        assert len(one.meaning) > 3, one
        assert re.search(r"\w", one.takes), one


def test_a_setting_is_explained_by_either_name() -> None:
    found = explain("linger.ms")
    assert explain("linger_ms") == found
    assert (found.keyword, found.takes, found.default) == ("linger_ms", "a whole number of at least 0", "5")
    assert found.clients == ("producer",)
    assert "records" in found.meaning
    with pytest.raises(OttlaError, match=r"there is no client setting linger\.sm; did you mean linger\.ms"):
        explain("linger.sm")


def test_constructors_are_typed() -> None:
    from ottla.client import Admin, AsyncConsumer, AsyncProducer, Consumer, Producer, ShareConsumer

    for cls in (Admin, AsyncConsumer, AsyncProducer, Consumer, Producer, ShareConsumer):
        assert typing.cast(typing.Any, cls).__init__.__annotations__["keywords"].startswith("Unpack[")
        assert cls.__init__.__doc__, cls


if __name__ == "__main__":
    REFERENCE.parent.mkdir(exist_ok=True)
    REFERENCE.write_text(reference())
    OPTIONS.write_text(options())
