"""`ottla users`: who logs in with a password (SCRAM), KIP-554."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ottla.cli.option import Commands, admin, as_json, cluster, confirm, yes_option
from ottla.kernel.error import OttlaError

if TYPE_CHECKING:
    from ottla.client.admin.credential import ScramMechanism

_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
#: What brokers take.
_ITERATIONS_MIN, _ITERATIONS_MAX = 4_096, 16_384
_mechanism = click.option(
    "-m",
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice(_MECHANISMS, case_sensitive=False),
    help="Only the password of this mechanism (default: both).",
)


@click.group(cls=Commands, invoke_without_command=True)
@cluster
@as_json
@click.pass_context
def users(context: click.Context, bootstrap: str, client: tuple[str, ...], as_json: bool) -> None:
    """Show who logs in with a password (SCRAM), set and delete passwords. Alone it lists."""
    if context.invoked_subcommand is None:
        context.invoke(list_, bootstrap=bootstrap, client=client, as_json=as_json)


def _constant(mechanism: str) -> ScramMechanism:
    from ottla.client.admin.credential import ScramMechanism

    return ScramMechanism[mechanism.upper().replace("-", "_")]


@users.command("list")
@cluster
@as_json
def list_(bootstrap: str, client: tuple[str, ...], as_json: bool) -> None:
    """All users that have a password. Passwords themselves cannot be shown."""
    from ottla.cli import screen

    with admin(bootstrap, client) as ask:
        found = ask.describe_scram_credentials().check()
    rows = [
        {"user": user, "mechanism": mechanism.name.replace("_", "-"), "iterations": iterations}
        for user, known in sorted(found.items())
        for mechanism, iterations in sorted(known.items())
    ]
    if as_json:
        screen.document(rows)
        return
    columns = [screen.Column("user", "name"), screen.Column("mechanism"), screen.Column("iterations", numeric=True)]
    screen.table(columns, [tuple(each.values()) for each in rows], empty="there is no user; ottla users set NAME")


@users.command("set")
@cluster
@click.argument("user")
@_mechanism
@click.option(
    "-i",
    "--iterations",
    type=click.IntRange(_ITERATIONS_MIN, _ITERATIONS_MAX),
    default=_ITERATIONS_MIN,
    show_default=True,
    help="Rounds of hashing.",
)
@as_json
def set_(
    bootstrap: str, client: tuple[str, ...], user: str, mechanisms: tuple[str, ...], iterations: int, as_json: bool
) -> None:
    """Give USER a password, a new user or one that is there.

    On a terminal it asks for the password twice; in a pipe the first line of stdin is the password. It is never an
    option: other users of the machine could read it there.
    """
    from ottla.cli import screen
    from ottla.client.admin.credential import ScramCredential

    password = _password(user)
    chosen = mechanisms or _MECHANISMS
    with admin(bootstrap, client) as ask:
        for mechanism in chosen:
            ask.alter_scram_credentials([ScramCredential(user, _constant(mechanism), password, iterations)]).check()
    about = {"user": user, "mechanisms": list(chosen), "iterations": iterations}
    screen.told(as_json, about, f"{user} has that password ({' and '.join(chosen)}); listeners with SASL ask for it")


def _password(user: str) -> str:
    if sys.stdin.isatty():
        asked: str = click.prompt(f"password of {user}", hide_input=True, confirmation_prompt=True, err=True)
        return asked
    password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise OttlaError("the first line of stdin is the password, and there is none")
    return password


@users.command()
@cluster
@click.argument("user")
@_mechanism
@yes_option
@as_json
def delete(
    bootstrap: str, client: tuple[str, ...], user: str, mechanisms: tuple[str, ...], yes: bool, as_json: bool
) -> None:
    """Take the passwords of USER away, or one of them."""
    from ottla.cli import screen
    from ottla.client.admin.credential import ScramDeletion

    with admin(bootstrap, client) as ask:
        known = ask.describe_scram_credentials().succeeded.get(user, {})
        wanted = [_constant(each) for each in mechanisms] or sorted(known)
        if not wanted or not known.keys() >= set(wanted):
            of = f" for {mechanisms[0]}" if mechanisms else ""
            raise OttlaError(f"{user} has no password{of}; `ottla users` lists who has")
        confirm(f"take the password of {user} away?", yes=yes)
        for mechanism in wanted:
            ask.alter_scram_credentials([ScramDeletion(user, mechanism)]).check()
    names = [each.name.replace("_", "-") for each in wanted]
    screen.told(as_json, {"user": user, "deleted": names}, f"{user} has no password any more ({' and '.join(names)})")
