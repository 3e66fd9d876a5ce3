"""`ottla tokens`: delegation tokens (KIP-48), with which programs authenticate as a user without its password.

Rules:
- The HMAC of a token is its password. `create` shows it once, and no command line takes it: `renew` and `expire` find a
  token by its id, or take the HMAC as ${file:PATH}, ${env:NAME} or ${prompt}.
- Options also have the names of kafka-delegation-tokens. A number alone is milliseconds; -1 is the brokers' limit.
"""

from __future__ import annotations

import binascii
import os
from base64 import b64decode, b64encode
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.amount import instant, span_ms
from ottla.cli.option import Commands, admin, as_json, cluster, prompt_once
from ottla.kernel.error import OttlaError

if TYPE_CHECKING:
    from ottla.client import Admin, DelegationToken

_hmac = click.option(
    "--hmac", metavar="REFERENCE", help="HMAC of the token instead of ID: ${file:PATH}, ${env:NAME} or ${prompt}."
)
_id = click.argument("token", required=False, metavar="[ID]")


def _period_ms(context: click.Context, parameter: click.Parameter, value: str) -> int:
    """Parse a time span, a number of milliseconds, or -1."""
    text = value.strip()
    period_ms = int(text) if text == "-1" or text.isdecimal() else span_ms(text)
    if period_ms is None or period_ms >= 1 << 63:
        raise click.UsageError(f"{text}: expected a time span (7d, 12h), milliseconds, or -1 for the brokers' limit")
    return period_ms


_span = partial(click.option, metavar="SPAN", callback=_period_ms, default="-1")


@click.group(cls=Commands, invoke_without_command=True)
@cluster
@as_json
@click.pass_context
def tokens(context: click.Context, bootstrap: str, client: tuple[str, ...], as_json: bool) -> None:
    """Create, renew, expire and describe delegation tokens. Without a command, describe them."""
    if context.invoked_subcommand is None:
        context.invoke(describe, bootstrap=bootstrap, client=client, as_json=as_json)


@tokens.command()
@cluster
@click.option("--owner", "--owner-principal", metavar="PRINCIPAL", help="Owner of the token (default: this user).")
@click.option(
    "--renewer",
    "--renewer-principal",
    "renewers",
    metavar="PRINCIPAL",
    multiple=True,
    help="Another user who may renew it.",
)
@_span("--max-life-time", "--max-life-time-period", "life_ms", help="Maximum lifetime; -1: the brokers' limit.")
@as_json
def create(
    bootstrap: str, client: tuple[str, ...], owner: str | None, renewers: tuple[str, ...], life_ms: int, as_json: bool
) -> None:
    """Create a token and show its HMAC, which is never shown again.

    A program authenticates by SCRAM with the id as user name, the HMAC as password, and tokenauth=true.
    """
    from ottla.cli import screen

    with admin(bootstrap, client) as ask:
        token = ask.create_delegation_token(
            owner=None if owner is None else _principal(owner),
            renewers=[_principal(renewer) for renewer in renewers],
            max_lifetime_ms=life_ms,
        )
    about = {**_about(token), "hmac": b64encode(token.hmac).decode()}
    if as_json:
        screen.document(about)
        return
    columns = [screen.Column("id", "name", whole=True), screen.Column("hmac", whole=True), screen.Column("owner")]
    columns += [screen.Column("expires", whole=True), screen.Column("ends", whole=True)]
    screen.table(columns, [tuple(about[name] for name in ("id", "hmac", "owner", "expires", "ends"))])
    screen.hint("the HMAC is the token's password: keep it, it is not shown again")


@tokens.command()
@cluster
@click.argument("owners", nargs=-1, metavar="[PRINCIPAL...]")
@click.option("--owner-principal", "more", metavar="PRINCIPAL", multiple=True, help="Same as PRINCIPAL.")
@as_json
def describe(
    bootstrap: str, client: tuple[str, ...], as_json: bool, owners: tuple[str, ...] = (), more: tuple[str, ...] = ()
) -> None:
    """Describe the tokens that one of these owns or may renew, or all that this user may see, without their HMACs."""
    from ottla.cli import screen

    wanted = [_principal(owner) for owner in (*owners, *more)]
    with admin(bootstrap, client) as ask:
        described = ask.describe_delegation_tokens(wanted or None)
    rows = [_about(token) for token in sorted(described, key=lambda known: (known.owner, known.issued_timestamp))]
    if as_json:
        screen.document(rows)
        return
    columns = [screen.Column("id", "name", whole=True), screen.Column("owner"), screen.Column("requester")]
    columns += [screen.Column("renewers"), *(screen.Column(name, whole=True) for name in ("issued", "expires", "ends"))]
    cells = [[", ".join(cell) if isinstance(cell, list) else cell for cell in row.values()] for row in rows]
    screen.table(columns, cells, empty="there are no tokens that this user may see; ottla tokens create creates one")


@tokens.command()
@cluster
@_id
@_hmac
@_span("--period", "--renew-time-period", "period_ms", help="New time to expiry, from now; -1: the brokers' limit.")
@as_json
def renew(
    bootstrap: str, client: tuple[str, ...], token: str | None, hmac: str | None, period_ms: int, as_json: bool
) -> None:
    """Extend the expiry of a token, up to its maximum lifetime."""
    with admin(bootstrap, client) as ask:
        expires = ask.renew_delegation_token(_hmac_of(ask, token, hmac), renew_period_ms=period_ms)
    _report(token, expires, as_json=as_json)


@tokens.command()
@cluster
@_id
@_hmac
@_span("--period", "--expiry-time-period", "period_ms", help="New time to expiry, from now; -1: at once.")
@as_json
def expire(
    bootstrap: str, client: tuple[str, ...], token: str | None, hmac: str | None, period_ms: int, as_json: bool
) -> None:
    """Expire a token, at once or after a time."""
    with admin(bootstrap, client) as ask:
        expires = ask.expire_delegation_token(_hmac_of(ask, token, hmac), expiry_period_ms=period_ms)
    _report(token, expires, as_json=as_json)


def _report(token: str | None, expires_ms: int, *, as_json: bool) -> None:
    from ottla.cli import screen

    when = instant(expires_ms)
    screen.report(
        as_json, {"id": token, "expires": when}, f"{f'token {token}' if token else 'the token'} expires {when}"
    )


def _hmac_of(ask: Admin, token: str | None, hmac: str | None) -> bytes:
    """Return the HMAC from the reference, or of the token with this id."""
    if (token is None) == (hmac is None):
        raise click.UsageError("expected either the ID of a token (`ottla tokens` lists them) or --hmac")
    if hmac is None:
        secret = next((known.hmac for known in ask.describe_delegation_tokens() if known.id == token), None)
        if secret is None:
            raise OttlaError(f"there is no token {token} that this user may see; `ottla tokens` lists them")
        return secret
    from ottla.cli.config_file import is_reference, resolved

    if not is_reference(hmac):
        raise click.UsageError(
            "every user of this machine can see --hmac on the command line; write '${file:PATH}', '${env:NAME}' or "
            "'${prompt}', or name the token by its ID"
        )
    try:
        return b64decode(resolved({"hmac": hmac}, prompt_once, os.environ)["hmac"], validate=True)
    except binascii.Error as error:
        raise OttlaError(
            f"the value of {hmac} is not an HMAC (expected base64, as `ottla tokens create` shows it)"
        ) from error


def _principal(text: str) -> str:
    kind, colon, name = text.partition(":")
    if not (name if colon else kind):
        raise click.UsageError(f"{text}: expected User:NAME or NAME")
    return text if colon else f"User:{text}"


def _about(token: DelegationToken) -> dict[str, Any]:
    return {
        "id": token.id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issued": instant(token.issued_timestamp),
        "expires": instant(token.expiry_timestamp),
        "ends": instant(token.max_timestamp),
    }
