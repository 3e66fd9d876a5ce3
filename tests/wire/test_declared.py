"""What the wire declares against what it declared when it was last compared with the JSON files in Apache's jars.

`test_schema_jar.py` (make interop) makes that comparison. After a change of a message run it, and then write
`declared.txt` with OTTLA_REWRITE=1.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from ottla.wire.schema import fields, schema
from tests.wire.value import classes

PATH = Path(__file__).with_name("declared.txt")


def _said(cls: Any) -> list[Any]:
    """Everything of a struct that decides its bytes, and which values may be left out."""
    return [
        (
            field.name,
            str(field.versions),
            field.type,
            field.is_array,
            str(field.nullable),
            field.tag,
            field.ignorable,
            repr(field.default),
            None if field.struct is None else _said(field.struct),
        )
        for field in fields(cls)
    ]


def _digest(cls: Any) -> str:
    known = schema(cls)
    return hashlib.sha256(repr((str(known.versions), str(known.flexible), _said(cls))).encode()).hexdigest()[:10]


def test_messages_are_declared_as_they_were_compared_with_apache() -> None:
    declared = {name: _digest(cls) for name, cls in sorted(classes().items())}
    if os.environ.get("OTTLA_REWRITE"):
        PATH.write_text("".join(f"{name} {digest}\n" for name, digest in declared.items()))
    known = dict(line.split() for line in PATH.read_text().splitlines())
    assert len(known) > 260
    changed = sorted(name for name in declared.keys() | known.keys() if declared.get(name) != known.get(name))
    assert not changed, f"changed: {', '.join(changed)}: compare with make interop ARGS=tests/wire/test_schema_jar.py"
