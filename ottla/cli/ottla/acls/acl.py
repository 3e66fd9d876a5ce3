"""`ottla acls`: rules that say which principal may do which operation on which resource."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ottla.cli.option import Commands, F, admin, as_json, check_terminal, cluster, confirm, yes_option
from ottla.cli.ottla.acls.role import explain, grant, revoke
from ottla.cli.ottla.acls.shown import (
    RESOURCES,
    about,
    constant,
    counted,
    host_of,
    operation_of,
    principal_of,
    sentence,
    show,
)

if TYPE_CHECKING:
    from ottla.client.admin.acl import Acl, AclFilter

_resource = click.argument("resource", type=click.Choice(RESOURCES), metavar="|".join(RESOURCES[:4]))
_name = click.argument("name", required=False, default="")
_prefixed = click.option("--prefixed", is_flag=True, help="All resources whose names begin with NAME.")
_host = click.option("--host", help="Only from this address.")


@click.group(cls=Commands, invoke_without_command=True)
@cluster
@as_json
@click.pass_context
def acls(context: click.Context, bootstrap: str, client: tuple[str, ...], as_json: bool) -> None:
    """Show and change the rules (ACLs) of principals. Without a command, list them."""
    if context.invoked_subcommand is None:
        context.invoke(list_, bootstrap=bootstrap, client=client, principal=None, resource=None, as_json=as_json)


@acls.command("list")
@cluster
@click.option("-p", "--principal", help="Only rules for this principal, e.g. User:ann.")
@click.option("-r", "--resource", type=click.Choice(RESOURCES), help="Only rules for resources of this kind.")
@as_json
def list_(bootstrap: str, client: tuple[str, ...], principal: str | None, resource: str | None, as_json: bool) -> None:
    """List all rules, or those for a principal or a kind of resource."""
    from ottla.client.admin.acl import AclFilter, AclResource

    kind = AclResource.ANY if resource is None else AclResource[constant(resource)]
    with admin(bootstrap, client) as ask:
        rules = ask.describe_acls(AclFilter(kind, principal=None if principal is None else principal_of(principal)))
    show(
        rules,
        as_json=as_json,
        empty="there are no ACLs; ottla acls grant NAME --consume TOPIC --group GROUP adds some",
    )


def _acl(
    principal: str, operation: str, resource: str, name: str, host: str | None, *, allow: bool, prefixed: bool
) -> Acl:
    from ottla.client.admin.acl import Acl, AclPermission, AclResource, PatternType

    kind = AclResource[constant(resource)]
    if kind is AclResource.CLUSTER:
        name = "kafka-cluster"
    elif not name:
        raise click.UsageError(f"expected the name of the {resource}, or * for all")
    return Acl(
        kind,
        name,
        principal_of(principal),
        operation_of(operation),
        AclPermission.ALLOW if allow else AclPermission.DENY,
        PatternType.PREFIXED if prefixed else PatternType.LITERAL,
        host_of(host),
    )


def _acl_arguments(function: F) -> F:
    """Add the arguments PRINCIPAL OPERATION RESOURCE NAME and their options."""
    for part in (_host, _prefixed, _name, _resource, click.argument("operation"), click.argument("principal")):
        function = part(function)
    return function


@acls.command()
@cluster
@_acl_arguments
@as_json
def allow(bootstrap: str, client: tuple[str, ...], as_json: bool, **meant: Any) -> None:
    """Allow PRINCIPAL to do OPERATION on a resource.

    \b
    ottla acls allow ann read topic flights
    ottla acls allow ann write topic fl --prefixed
    """  # noqa: D301 - click wants the backspace itself
    _add(bootstrap, client, _acl(**meant, allow=True), as_json=as_json)


@acls.command()
@cluster
@_acl_arguments
@as_json
def deny(bootstrap: str, client: tuple[str, ...], as_json: bool, **meant: Any) -> None:
    """Deny PRINCIPAL to do OPERATION on a resource. A denial takes precedence over rules that allow."""
    _add(bootstrap, client, _acl(**meant, allow=False), as_json=as_json)


def _add(bootstrap: str, client: tuple[str, ...], acl: Acl, *, as_json: bool) -> None:
    from ottla.cli import screen

    with admin(bootstrap, client) as ask:
        ask.create_acls([acl]).check()
    screen.report(as_json, about(acl), sentence(acl))


@acls.command()
@cluster
@click.argument("principal")
@click.option("-r", "--resource", type=click.Choice(RESOURCES), help="Only rules for resources of this kind.")
@click.option("-n", "--name", help="Only rules for resources with this name.")
@click.option("-o", "--operation", help="Only rules for this operation.")
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
    """Remove the rules for PRINCIPAL (all, or those that the options select), and show them."""
    which = _filter(principal, resource, name, operation)
    if not yes:
        check_terminal(f"remove the rules for {principal}?")
    with admin(bootstrap, client) as ask:
        if not yes:
            confirm(f"remove {counted(len(ask.describe_acls(which)))} for {principal}?", yes=False)
        removed = ask.delete_acls([which])[which]
    show(removed, as_json=as_json, empty="there was no such rule")


def _filter(principal: str, resource: str | None, name: str | None, operation: str | None) -> AclFilter:
    from ottla.client.admin.acl import AclFilter, AclOperation, AclResource

    kind = AclResource.ANY if resource is None else AclResource[constant(resource)]
    what = AclOperation.ANY
    if operation is not None:
        what = operation_of(operation)
    return AclFilter(kind, name, principal_of(principal), what)


acls.add_command(grant)
acls.add_command(revoke)
acls.add_command(explain)
