"""Paths of kafka-metadata-shell: their parts, wildcards, and the nodes that they match."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeGuard

from ottla.cli.kafka.program.tool import Failed

if TYPE_CHECKING:
    from ottla.cli.kafka.metadata.metadata_tree import Node, TreeDirectory


def effective(paths: list[str]) -> list[str]:
    """Return the paths that are not empty; `.` when there are none."""
    return [path for path in paths if path] or ["."]


def parts(path: str) -> list[str]:
    """Return the names along a path, with `..` and `.` resolved."""
    names: list[str] = []
    for part in path.split("/"):
        if part == "..":
            names = names[:-1]
        elif part not in ("", "."):
            names.append(part)
    return names


def is_directory(node: Node | None) -> TypeGuard[TreeDirectory]:
    """Whether the node has children."""
    from ottla.cli.kafka.metadata.metadata_tree import TreeDirectory

    return isinstance(node, TreeDirectory)


def match(node: Node, parts: list[str], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Node]]:
    """Yield (path, node) of all nodes whose path matches."""
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
    for name, child_node in node.children():
        if pattern.fullmatch(name):
            yield from match(opened(name, child_node, "/" + "/".join(path)), parts[1:], (*path, name))


def opened(name: str, node: Node | None, path: str) -> Node:
    """Return the child. Failed where Apache's tree names a child that it cannot open."""
    if node is None:
        raise Failed(f"Expected {name} to be a valid child of {path}, but it was not.")
    return node


def _pattern(glob: str) -> re.Pattern[str] | None:
    """Compile a part of a path with wildcards: ?, *, {one,other}; a backslash escapes a character.

    None for a part without wildcards, and for one with a group that is not closed or nested.
    """
    expression: list[str] = []
    wild = grouped = False
    letters = iter(glob)
    for letter in letters:
        if letter in "?*":
            wild = True
            expression.append("." if letter == "?" else ".*")
        elif letter == "\\":
            expression.append(re.escape(next(letters, "\\")))
        elif letter == "{":
            if grouped:
                return None
            wild = grouped = True
            expression.append("(?:(?:")
        elif letter == "," and grouped:
            expression.append(")|(?:")
        elif letter == "}" and grouped:
            grouped = False
            expression.append("))")
        else:
            expression.append(re.escape(letter))
    return re.compile("".join(expression), re.DOTALL) if wild and not grouped else None
