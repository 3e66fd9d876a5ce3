"""`ottla users`: users with a password (SCRAM), KIP-554."""

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
    """List users with a password (SCRAM), set and delete passwords. Without a command, list them."""
    if context.invoked_subcommand is None:
        context.invoke(list_, bootstrap=bootstrap, client=client, as_json=as_json)


def _constant(mechanism: str) -> ScramMechanism:
    from ottla.client.admin.credential import ScramMechanism

    return ScramMechanism[mechanism.upper().replace("-", "_")]


@users.command("list")
@cluster
@as_json
def list_(bootstrap: str, client: tuple[str, ...], as_json: bool) -> None:
    """List the users that have a password. The passwords themselves cannot be shown."""
    from ottla.cli import screen
    from ottla.operations.passwords import name_of

    with admin(bootstrap, client) as ask:
        credentials = ask.describe_scram_credentials().check()
    rows = [
        {"user": user, "mechanism": name_of(mechanism), "iterations": iterations}
        for user, known in sorted(credentials.items())
        for mechanism, iterations in sorted(known.items())
    ]
    if as_json:
        screen.document(rows)
        return
    columns = [screen.Column("user", "name"), screen.Column("mechanism"), screen.Column("iterations", numeric=True)]
    screen.table(
        columns, [tuple(row.values()) for row in rows], empty="there are no users; ottla users set NAME adds one"
    )


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
    help="Iterations of the hash.",
)
@as_json
def set_(
    bootstrap: str, client: tuple[str, ...], user: str, mechanisms: tuple[str, ...], iterations: int, as_json: bool
) -> None:
    """Set the password of USER, a new or an existing user.

    On a terminal, it asks for the password twice; in a pipe, the first line of stdin is the password. There is no
    option for it: other users of the machine could see it.
    """
    from ottla.cli import screen
    from ottla.operations.passwords import name_of, set_password

    password = _password(user)
    with admin(bootstrap, client) as ask:
        chosen = set_password(
            ask, user, password, [_constant(mechanism) for mechanism in mechanisms], iterations=iterations
        )
    names = [name_of(chosen_mechanism) for chosen_mechanism in chosen]
    about = {"user": user, "mechanisms": names, "iterations": iterations}
    screen.report(as_json, about, f"set the password of {user} ({' and '.join(names)}), for listeners with SASL")


def _password(user: str) -> str:
    if sys.stdin.isatty():
        asked: str = click.prompt(f"password of {user}", hide_input=True, confirmation_prompt=True, err=True)
        return asked
    password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise OttlaError("stdin is empty (expected the password on its first line)")
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
    """Delete the password of USER, for both mechanisms or one of them."""
    from ottla.cli import screen
    from ottla.operations.passwords import name_of, plan_deletion

    with admin(bootstrap, client) as ask:
        deletion = plan_deletion(ask, user, [_constant(mechanism) for mechanism in mechanisms])
        confirm(f"delete the password of {user}?", yes=yes)
        deletion.commit(ask)
    names = [name_of(mechanism) for mechanism in deletion.mechanisms]
    screen.report(as_json, {"user": user, "deleted": names}, f"deleted the password of {user} ({' and '.join(names)})")
