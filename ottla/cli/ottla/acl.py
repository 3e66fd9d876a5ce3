"""`ottla acls`: who may do what with what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ottla.cli.option import Commands, F, admin, as_json, check_terminal, cluster, confirm, yes_option
from ottla.kernel.error import OttlaError

if TYPE_CHECKING:
    from ottla.client.admin.acl import Acl, AclFilter

_RESOURCES = ("topic", "group", "cluster", "transactional-id", "delegation-token", "user")
_resource = click.argument("resource", type=click.Choice(_RESOURCES), metavar="|".join(_RESOURCES[:4]))
_name = click.argument("name", required=False, default="")
_prefixed = click.option("--prefixed", is_flag=True, help="All whose names begin with NAME.")
_host = click.option("--host", help="From this address only.")


@click.group(cls=Commands, invoke_without_command=True)
@cluster
@as_json
@click.pass_context
def acls(context: click.Context, bootstrap: str, client: tuple[str, ...], as_json: bool) -> None:
    """Show and change who may do what with what. Alone it lists."""
    if context.invoked_subcommand is None:
        context.invoke(list_, bootstrap=bootstrap, client=client, principal=None, resource=None, as_json=as_json)


@acls.command("list")
@cluster
@click.option("-p", "--principal", help="Only what is about this one, e.g. User:ann.")
@click.option("-r", "--resource", type=click.Choice(_RESOURCES), help="Only what is about resources of this kind.")
@as_json
def list_(bootstrap: str, client: tuple[str, ...], principal: str | None, resource: str | None, as_json: bool) -> None:
    """All lines, or those about a principal or a kind of resource."""
    from ottla.client.admin.acl import AclFilter, AclResource

    kind = AclResource.ANY if resource is None else AclResource[_constant(resource)]
    with admin(bootstrap, client) as ask:
        found = ask.describe_acls(AclFilter(kind, principal=None if principal is None else _principal(principal)))
    _show(found, as_json=as_json, empty="there are no ACLs; ottla acls allow User:NAME read topic TOPIC adds one")


def _show(found: list[Acl] | tuple[Acl, ...], *, as_json: bool, empty: str) -> None:
    from ottla.cli import screen

    rows = sorted(
        map(_about, found),
        key=lambda each: (each["principal"], each["resource"], each["name"], each["operation"]),
    )
    if as_json:
        screen.document(rows)
        return
    columns = [screen.Column("principal", "name"), *(screen.Column(title) for title in _TITLES)]
    screen.table(columns, [_row(each) for each in rows], empty=empty)


def _about(acl: Acl) -> dict[str, Any]:
    return {
        "principal": acl.principal,
        "permission": acl.permission.name.lower(),
        "operation": _word(acl.operation.name),
        "resource": _word(acl.resource.name),
        "name": acl.name,
        "pattern": acl.pattern.name.lower(),
        "host": acl.host,
    }


_TITLES = ("may", "operation", "resource", "name", "from")


def _row(acl: dict[str, Any]) -> list[object]:
    from ottla.cli import screen

    allowed = acl["permission"] == "allow"
    name = acl["name"] + ("*" if acl["pattern"] == "prefixed" else "")
    permission = screen.coloured(acl["permission"], "green" if allowed else "red")
    return [acl["principal"], permission, acl["operation"], acl["resource"], name, acl["host"]]


def _word(constant: str) -> str:
    return constant.lower().replace("_", "-")


def _constant(word: str) -> str:
    return word.upper().replace("-", "_")


def _principal(text: str) -> str:
    return text if ":" in text else f"User:{text}"


def _meant(
    principal: str, operation: str, resource: str, name: str, host: str | None, *, allow: bool, prefixed: bool
) -> Acl:
    from ottla.client.admin.acl import Acl, AclOperation, AclPermission, AclResource, PatternType

    kind = AclResource[_constant(resource)]
    if kind is AclResource.CLUSTER:
        name = "kafka-cluster"
    elif not name:
        raise click.UsageError(f"which {resource}? give its name, or * for all")
    found = _constant(operation)
    if found not in AclOperation.__members__ or found == "ANY":
        names = ", ".join(_word(each) for each in AclOperation.__members__ if each != "ANY")
        raise OttlaError(f"there is no operation {operation}: these are {names}")
    return Acl(
        kind,
        name,
        _principal(principal),
        AclOperation[found],
        AclPermission.ALLOW if allow else AclPermission.DENY,
        PatternType.PREFIXED if prefixed else PatternType.LITERAL,
        host or "*",
    )


def _what(function: F) -> F:
    """PRINCIPAL OPERATION RESOURCE NAME."""
    for part in (_host, _prefixed, _name, _resource, click.argument("operation"), click.argument("principal")):
        function = part(function)
    return function


@acls.command()
@cluster
@_what
@as_json
def allow(bootstrap: str, client: tuple[str, ...], as_json: bool, **meant: Any) -> None:
    """Let PRINCIPAL do OPERATION with a resource.

    \b
    ottla acls allow ann read topic flights
    ottla acls allow ann write topic fl --prefixed
    """  # noqa: D301 - click wants the backspace itself
    _add(bootstrap, client, _meant(**meant, allow=True), as_json=as_json)


@acls.command()
@cluster
@_what
@as_json
def deny(bootstrap: str, client: tuple[str, ...], as_json: bool, **meant: Any) -> None:
    """Keep PRINCIPAL from doing OPERATION with a resource. This goes before what is allowed."""
    _add(bootstrap, client, _meant(**meant, allow=False), as_json=as_json)


def _add(bootstrap: str, client: tuple[str, ...], acl: Acl, *, as_json: bool) -> None:
    from ottla.cli import screen

    with admin(bootstrap, client) as ask:
        ask.create_acls([acl]).check()
    screen.told(
        as_json,
        _about(acl),
        f"{acl.principal}: {acl.permission.name.lower()} {_word(acl.operation.name)} {_word(acl.resource.name)} "
        f"{acl.name}{'*' if acl.pattern.name == 'PREFIXED' else ''}",
    )


@acls.command()
@cluster
@click.argument("principal")
@click.option("-r", "--resource", type=click.Choice(_RESOURCES), help="Only lines about resources of this kind.")
@click.option("-n", "--name", help="Only lines about resources of this name.")
@click.option("-o", "--operation", help="Only lines about this operation.")
@yes_option
@as_json
def remove(
    bootstrap: str,
    client: tuple[str, ...],
    principal: str,
    resource: str | None,
    name: str | None,
    operation: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove the lines about PRINCIPAL (all, or fewer with options), and show them."""
    which = _filter(principal, resource, name, operation)
    if not yes:
        check_terminal(f"remove what is said about {principal}?")
    with admin(bootstrap, client) as ask:
        if not yes:
            confirm(f"remove {_counted(len(ask.describe_acls(which)))} about {principal}?", yes=False)
        removed = ask.delete_acls([which])[which]
    _show(removed, as_json=as_json, empty="there was no such line")


def _counted(count: int) -> str:
    return f"{count} line{'' if count == 1 else 's'}"


def _filter(principal: str, resource: str | None, name: str | None, operation: str | None) -> AclFilter:
    from ottla.client.admin.acl import AclFilter, AclOperation, AclResource

    kind = AclResource.ANY if resource is None else AclResource[_constant(resource)]
    what = AclOperation.ANY
    if operation is not None:
        if _constant(operation) not in AclOperation.__members__:
            raise OttlaError(f"there is no operation {operation}")
        what = AclOperation[_constant(operation)]
    return AclFilter(kind, name, _principal(principal), what)
