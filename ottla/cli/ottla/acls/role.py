"""`ottla acls grant`, `revoke` and `explain`: the rules for a role, and which rule decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ottla.cli.option import F, Tool, admin, as_json, check_terminal, cluster, confirm, yes_option
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
    word,
)

if TYPE_CHECKING:
    from ottla.client.admin.acl import Acl


def _role(function: F) -> F:
    for part in (
        click.option("--host", help="Only from this address."),
        click.option("--prefixed", is_flag=True, help="Each name stands for all names that begin with it."),
        click.option("--administer", is_flag=True, help="All operations on all resources."),
        click.option(
            "-g", "--group", "groups", multiple=True, metavar="GROUP", help="Group to consume in; may be repeated."
        ),
        click.option("--consume", multiple=True, metavar="TOPIC", help="Topic to read, in a group; may be repeated."),
        click.option(
            "--transactional-id",
            "transactional_ids",
            multiple=True,
            metavar="ID",
            help="Id to write transactions with.",
        ),
        click.option(
            "--produce", multiple=True, metavar="TOPIC", help="Topic to write to and create; may be repeated."
        ),
        click.argument("principal"),
    ):
        function = part(function)
    return function


def _granted(
    principal: str,
    produce: tuple[str, ...],
    transactional_ids: tuple[str, ...],
    consume: tuple[str, ...],
    groups: tuple[str, ...],
    *,
    administer: bool,
    prefixed: bool,
    host: str | None,
) -> list[Acl]:
    from ottla.client.admin.acl import PatternType
    from ottla.operations.access import granted

    if not (produce or transactional_ids or consume or groups or administer):
        raise click.UsageError("expected --produce TOPIC, --consume TOPIC --group GROUP, or --administer")
    if consume and not groups:
        raise click.UsageError("a consumer commits its offsets in a group: add --group GROUP (or --group '*')")
    return granted(
        principal_of(principal),
        produce=produce,
        transactional_ids=transactional_ids,
        consume=consume,
        groups=groups,
        administer=administer,
        pattern=PatternType.PREFIXED if prefixed else PatternType.LITERAL,
        host=host_of(host),
    )


@click.command(cls=Tool)
@cluster
@_role
@as_json
def grant(bootstrap: str, client: tuple[str, ...], as_json: bool, **role: Any) -> None:
    """Give PRINCIPAL all the rules that a producer, a consumer or an administrator needs.

    \b
    ottla acls grant ann --produce orders
    ottla acls grant ben --consume orders --group billing
    """  # noqa: D301 - click wants the backspace itself
    from ottla.cli import screen

    wanted = _granted(**role)
    with admin(bootstrap, client) as ask:
        ask.create_acls(wanted).check()
    screen.report(as_json, [about(acl) for acl in wanted], *map(sentence, wanted))


@click.command(cls=Tool)
@cluster
@_role
@yes_option
@as_json
def revoke(bootstrap: str, client: tuple[str, ...], yes: bool, as_json: bool, **role: Any) -> None:
    """Remove the rules that `grant` with the same options adds.

    This also removes a rule that another role of PRINCIPAL needs.
    """
    from ottla.operations.access import exactly

    which = [exactly(acl) for acl in _granted(**role)]
    if not yes:
        check_terminal(f"remove these rules for {role['principal']}?")
    with admin(bootstrap, client) as ask:
        if not yes:
            there = sum(len(ask.describe_acls(filter_)) for filter_ in which)
            confirm(f"remove {counted(there)} for {role['principal']}?", yes=False)
        removed = ask.delete_acls(which)
        acls = [acl for filter_ in which for acl in removed[filter_]]
    show(acls, as_json=as_json, empty="there was no such rule")


@click.command(cls=Tool)
@cluster
@click.argument("principal")
@click.argument("operation")
@click.argument("resource", nargs=-1, required=True, metavar=f"[{'|'.join(RESOURCES[:4])}] NAME")
@click.option("--host", default="", help="Address of the client (default: one that no rule names).")
@as_json
def explain(
    bootstrap: str,
    client: tuple[str, ...],
    principal: str,
    operation: str,
    resource: tuple[str, ...],
    host: str,
    as_json: bool,
) -> None:
    """Say whether PRINCIPAL may do OPERATION on a resource, and which rule decides.

    \b
    ottla acls explain ann read orders
    ottla acls explain ann read group billing
    """  # noqa: D301 - click wants the backspace itself
    from ottla.cli import screen
    from ottla.client.admin.acl import AclResource
    from ottla.operations.access import explained, speaking_of

    kind, name = _resource(resource)
    who, what = principal_of(principal), operation_of(operation)
    with admin(bootstrap, client) as ask:
        acls = ask.describe_acls(speaking_of(AclResource[constant(kind)], name))
    explanation = explained(acls, who, what, AclResource[constant(kind)], name, host and host_of(host))
    thing = "the cluster" if kind == "cluster" else f"{kind} {name}"
    lines = [f"{who} {'may' if explanation.is_allowed else 'may not'} {word(what.name)} {thing}: {explanation.reason}"]
    if explanation.rule is not None:
        lines.append(f"the rule: {sentence(explanation.rule)}")
    if explanation.elsewhere:
        lines.append(f"other rules decide the opposite for {', '.join(explanation.elsewhere)}")
    if as_json:
        rule = None if explanation.rule is None else about(explanation.rule)
        decided = {
            "allowed": explanation.is_allowed,
            "reason": explanation.reason,
            "rule": rule,
            "elsewhere": explanation.elsewhere,
        }
        screen.document(decided)
        return
    for line in lines:
        click.echo(line)


def _resource(words: tuple[str, ...]) -> tuple[str, str]:
    """Return the kind and the name; a single word is a topic's name, or `cluster`."""
    if words[0] == "cluster":
        return "cluster", "kafka-cluster"
    if len(words) == 1:
        return "topic", words[0]
    if len(words) > 2 or words[0] not in RESOURCES:
        raise click.UsageError(
            f"invalid resource: {' '.join(words)} (expected one of {', '.join(RESOURCES)}, and a name)"
        )
    return words[0], words[1]
