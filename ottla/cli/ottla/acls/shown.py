"""Rules of an authorizer in words: how people name their parts, and how they are shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.kernel.error import OttlaError

if TYPE_CHECKING:
    from ottla.client.admin.acl import Acl, AclOperation

RESOURCES = ("topic", "group", "cluster", "transactional-id", "delegation-token", "user")
_TITLES = ("may", "operation", "resource", "name", "from")


def word(constant: str) -> str:
    """A constant as people write it."""
    return constant.lower().replace("_", "-")


def constant(text: str) -> str:
    """A word as Kafka's constant."""
    return text.upper().replace("-", "_")


def principal_of(text: str) -> str:
    """TYPE:NAME; a name alone is a user's."""
    return text if ":" in text else f"User:{text}"


def operation_of(text: str) -> AclOperation:
    """The operation of this name; an error names those that there are."""
    from ottla.client.admin.acl import AclOperation

    found = constant(text)
    if found not in AclOperation.__members__ or found == "ANY":
        names = ", ".join(word(each) for each in AclOperation.__members__ if each != "ANY")
        raise OttlaError(f"there is no operation {text}: these are {names}")
    return AclOperation[found]


def about(acl: Acl) -> dict[str, Any]:
    """A rule as a document."""
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
    """A rule as a line."""
    said = f"{acl.principal}: {acl.permission.name.lower()} {word(acl.operation.name)} {word(acl.resource.name)} "
    return f"{said}{acl.name}{_star(acl.pattern.name)}" + ("" if acl.host == "*" else f" from {acl.host}")


def _star(pattern: str) -> str:
    return "*" if pattern.lower() == "prefixed" else ""


def show(found: Sequence[Acl], *, as_json: bool, empty: str) -> None:
    """Rules as a table, or as a document."""
    from ottla.cli import screen

    rows = sorted(
        map(about, found), key=lambda each: [each[key] for key in ("principal", "resource", "name", "operation")]
    )
    if as_json:
        screen.document(rows)
        return
    columns = [screen.Column("principal", "name"), *(screen.Column(title) for title in _TITLES)]
    screen.table(columns, [_row(each) for each in rows], empty=empty)


def _row(acl: dict[str, Any]) -> list[object]:
    from ottla.cli import screen

    permission = screen.coloured(acl["permission"], "green" if acl["permission"] == "allow" else "red")
    name = acl["name"] + _star(acl["pattern"])
    return [acl["principal"], permission, acl["operation"], acl["resource"], name, acl["host"]]


def counted(count: int) -> str:
    """So many lines."""
    return f"{count} line{'' if count == 1 else 's'}"
