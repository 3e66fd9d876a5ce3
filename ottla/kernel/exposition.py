"""The Prometheus text format (version 0.0.4): metric families as lines."""

from __future__ import annotations

from collections.abc import Iterable

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def family(name: str, kind: str, text: str, samples: Iterable[tuple[str, float]]) -> list[str]:
    """Return the lines of a family; `samples` are (labels, value). Without samples there are no lines.

    `kind` is counter, gauge, histogram or summary. The labels may start with a suffix of the name (`_count{...}`).
    """
    lines = [f"{name}{labelled} {value!r}" for labelled, value in samples]
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *lines] if lines else []


def labels(**values: object) -> str:
    """Return `{name="value",...}` with escaped values."""
    return "{" + ",".join(f'{name}="{_escaped(str(value))}"' for name, value in values.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
