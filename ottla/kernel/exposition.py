"""Prometheus' text format (version 0.0.4): families of samples as lines."""

from __future__ import annotations

from collections.abc import Iterable

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def family(name: str, kind: str, text: str, samples: Iterable[tuple[str, float]]) -> list[str]:
    """The lines of a family: (labels, value) of each sample; none where there is no sample.

    `kind` is counter, gauge, histogram or summary. The labels may begin with a suffix of the name (`_count{...}`).
    """
    found = [f"{name}{labelled} {value!r}" for labelled, value in samples]
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *found] if found else []


def labels(**values: object) -> str:
    """`{name="value",...}`, values escaped."""
    return "{" + ",".join(f'{name}="{_escaped(str(value))}"' for name, value in values.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
