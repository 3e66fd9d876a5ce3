"""Paths of kafka-metadata-shell: their parts, wildcards, and the nodes that they name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeGuard

from ottla.cli.kafka.program.tool import Failed

if TYPE_CHECKING:
    from ottla.cli.kafka.metadata.metadata_tree import Node, TreeDirectory


def effective(paths: list[str]) -> list[str]:
    """The names that are not empty; . when there is none."""
    return [each for each in paths if each] or ["."]


def parts(path: str) -> list[str]:
    """The names along a path, .. and . followed."""
    found: list[str] = []
    for part in path.split("/"):
        if part == "..":
            found = found[:-1]
        elif part not in ("", "."):
            found.append(part)
    return found


def is_directory(node: Node | None) -> TypeGuard[TreeDirectory]:
    """May it be looked into?"""
    from ottla.cli.kafka.metadata.metadata_tree import TreeDirectory

    return isinstance(node, TreeDirectory)


def match(node: Node, parts: list[str], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Node]]:
    """All nodes whose path fits, each with its path."""
    if not parts:
        yield path, node
        return
    if not is_directory(node):
        return
    pattern = _pattern(parts[0])
    if pattern is None:
        child = node.child(parts[0])
        if child is not None:
            yield from match(child, parts[1:], (*path, parts[0]))
        return
    for name, each in node.children():
        if pattern.fullmatch(name):
            yield from match(opened(name, each, "/" + "/".join(path)), parts[1:], (*path, name))


def opened(name: str, node: Node | None, path: str) -> Node:
    """The child; Failed where Apache's tree names one that it cannot open."""
    if node is None:
        raise Failed(f"Expected {name} to be a valid child of {path}, but it was not.")
    return node


def _pattern(glob: str) -> re.Pattern[str] | None:
    """A part of a path with wildcards: ?, *, {one,other}, and a backslash before what is meant as it is.

    None for a part without any, and for one with a group that is not closed or stands in another.
    """
    found: list[str] = []
    wild = grouped = False
    letters = iter(glob)
    for letter in letters:
        if letter in "?*":
            wild = True
            found.append("." if letter == "?" else ".*")
        elif letter == "\\":
            found.append(re.escape(next(letters, "\\")))
        elif letter == "{":
            if grouped:
                return None
            wild = grouped = True
            found.append("(?:(?:")
        elif letter == "," and grouped:
            found.append(")|(?:")
        elif letter == "}" and grouped:
            grouped = False
            found.append("))")
        else:
            found.append(re.escape(letter))
    return re.compile("".join(found), re.DOTALL) if wild and not grouped else None
