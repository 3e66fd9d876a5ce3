"""Formatting of ACLs, and parsing of their parts on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ottla.kernel.address import canonical_address, java_address

if TYPE_CHECKING:
    from ottla.client.admin.acl import Acl, AclOperation

RESOURCES = ("topic", "group", "cluster", "transactional-id", "delegation-token", "user")
_TITLES = ("may", "operation", "resource", "name", "from")


def word(constant: str) -> str:
    """Convert a constant of Kafka to a word: TRANSACTIONAL_ID to transactional-id."""
    return constant.lower().replace("_", "-")


def constant(text: str) -> str:
    """Convert a word to a constant of Kafka: transactional-id to TRANSACTIONAL_ID."""
    return text.upper().replace("-", "_")


def principal_of(text: str) -> str:
    """Return TYPE:NAME; a name alone is that of a User."""
    return text if ":" in text else f"User:{text}"


def operation_of(text: str) -> AclOperation:
    """Parse an operation. A usage error lists the operations."""
    from ottla.client.admin.acl import AclOperation

    name = constant(text)
    if name not in AclOperation.__members__ or name == "ANY":
        names = ", ".join(word(member) for member in AclOperation.__members__ if member != "ANY")
        raise click.UsageError(f"unknown operation: {text} (expected {names})")
    return AclOperation[name]


def host_of(text: str | None) -> str:
    """Return an address as brokers write it, because they compare it as text. A usage error if it is none."""
    if text in (None, "", "*"):
        return "*"
    try:
        return java_address(canonical_address(str(text)))
    except ValueError:
        raise click.UsageError(
            f"invalid value for --host: {text} (expected an IP address, or *; brokers do not resolve names)"
        ) from None


def about(acl: Acl) -> dict[str, Any]:
    """Return a rule as a JSON object."""
    return {
        "principal": acl.principal,
        "permission": acl.permission.name.lower(),
        "operation": word(acl.operation.name),
        "resource": word(acl.resource.name),
        "name": acl.name,
        "pattern": acl.pattern.name.lower(),
        "host": acl.host,
    }


def sentence(acl: Acl) -> str:
    """Return a rule as one line."""
    said = f"{acl.principal}: {acl.permission.name.lower()} {word(acl.operation.name)} {word(acl.resource.name)} "
    return f"{said}{acl.name}{_star(acl.pattern.name)}" + ("" if acl.host == "*" else f" from {acl.host}")


def _star(pattern: str) -> str:
    return "*" if pattern.lower() == "prefixed" else ""


def show(acls: Sequence[Acl], *, as_json: bool, empty: str) -> None:
    """Print rules as a table, or as a JSON document."""
    from ottla.cli import screen

    rows = sorted(
        map(about, acls), key=lambda row: [row[key] for key in ("principal", "resource", "name", "operation")]
    )
    if as_json:
        screen.document(rows)
        return
    columns = [screen.Column("principal", "name"), *(screen.Column(title) for title in _TITLES)]
    screen.table(columns, [_row(row) for row in rows], empty=empty)


def _row(acl: dict[str, Any]) -> list[object]:
    from ottla.cli import screen

    permission = screen.coloured(acl["permission"], "green" if acl["permission"] == "allow" else "red")
    name = acl["name"] + _star(acl["pattern"])
    return [acl["principal"], permission, acl["operation"], acl["resource"], name, acl["host"]]


def counted(count: int) -> str:
    """Format a number of rules."""
    return f"{count} rule{'' if count == 1 else 's'}"
