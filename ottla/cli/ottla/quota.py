"""`ottla quotas`: quotas of users, clients and addresses."""

from __future__ import annotations

from typing import Any

import click

from ottla.cli.amount import byte_count
from ottla.cli.option import Commands, admin, as_json, cluster, pairs
from ottla.kernel.error import OttlaError

_DEFAULT = "default"
_whom = click.option("-u", "--user", help="User; `default`: all without their own quotas.")
_client_id = click.option("-c", "--client-id", help="Client id; `default`: all without their own quotas.")
_ip = click.option("-i", "--ip", help="IP address; `default`: all without their own quotas.")
_NAMES = (
    "producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate, connection_creation_rate"
)


@click.group(cls=Commands, invoke_without_command=True)
@cluster
@as_json
@click.pass_context
def quotas(context: click.Context, bootstrap: str, client: tuple[str, ...], as_json: bool) -> None:
    """Show and change the quotas of users, clients and addresses. Without a command, list them."""
    if context.invoked_subcommand is None:
        context.invoke(list_, bootstrap=bootstrap, client=client, as_json=as_json)


@quotas.command("list")
@cluster
@as_json
def list_(bootstrap: str, client: tuple[str, ...], as_json: bool) -> None:
    """List the quotas."""
    from ottla.cli import screen

    with admin(bootstrap, client) as ask:
        quotas_by_entity = ask.describe_client_quotas()
    entries: list[dict[str, dict[str, Any]]] = [
        {"entity": {part: name if name is not None else _DEFAULT for part, name in entity.parts}, "quotas": values}
        for entity, values in sorted(quotas_by_entity.items(), key=str)
    ]
    if as_json:
        screen.document(entries)
        return
    columns = [screen.Column("entity", "name"), screen.Column("quota"), screen.Column("limit", numeric=True)]
    rows = [
        (" ".join(f"{part} {name}" for part, name in entry["entity"].items()), quota, _shown(quota, value))
        for entry in entries
        for quota, value in sorted(entry["quotas"].items())
    ]
    screen.table(columns, rows, empty="there are no quotas; ottla quotas set --user NAME producer_byte_rate=1000000")


def _shown(quota: str, value: float) -> str:
    from ottla.cli import screen

    if not screen.on_terminal():
        return _plain(value)
    if quota.endswith("byte_rate"):
        return f"{screen.size(int(value))}/s"
    return f"{value:,.10g}" + (" %" if quota == "request_percentage" else "/s")


def _plain(value: float) -> str:
    """A whole number without `.0`."""
    return str(int(value)) if value.is_integer() else repr(value)


def _entity(user: str | None, client_id: str | None, ip: str | None) -> dict[str, str | None]:
    given = {"user": user, "client-id": client_id, "ip": ip}
    entity = {part: None if name == _DEFAULT else name for part, name in given.items() if name is not None}
    if not entity:
        raise click.UsageError("expected --user, --client-id or both, or --ip")
    return entity


@quotas.command("set")
@cluster
@_whom
@_client_id
@_ip
@click.argument("changes", nargs=-1, required=True, metavar="QUOTA=NUMBER...")
@as_json
def set_(
    bootstrap: str,
    client: tuple[str, ...],
    user: str | None,
    client_id: str | None,
    ip: str | None,
    changes: tuple[str, ...],
    as_json: bool,
) -> None:
    """Set quotas: producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate; for an address:
    connection_creation_rate.
    """
    from ottla.cli import screen

    entity = _entity(user, client_id, ip)
    wanted: dict[str, float] = {}
    for name, text in pairs(changes).items():
        amount = byte_count(text.removesuffix("/s")) if name.endswith("byte_rate") else None
        try:
            wanted[name] = float(text if amount is None else amount)
        except ValueError:
            raise click.UsageError(f"{name}={text}: expected a number") from None
    with admin(bootstrap, client) as ask:
        ask.alter_client_quotas([(entity, wanted)]).check()
    screen.report(
        as_json,
        {"entity": _parts(entity), "set": wanted},
        *(f"{_named(entity)}: {name}={_plain(amount)}" for name, amount in wanted.items()),
    )


@quotas.command()
@cluster
@_whom
@_client_id
@_ip
@click.argument("names", nargs=-1, required=True, metavar="QUOTA...")
@as_json
def unset(
    bootstrap: str,
    client: tuple[str, ...],
    user: str | None,
    client_id: str | None,
    ip: str | None,
    names: tuple[str, ...],
    as_json: bool,
) -> None:
    """Remove quotas."""
    from ottla.cli import screen
    from ottla.client.admin.quota import QuotaEntity

    entity = _entity(user, client_id, ip)
    with admin(bootstrap, client) as ask:
        own = ask.describe_client_quotas().get(QuotaEntity.of(entity), {})
        if absent := [name for name in names if name not in own]:
            raise OttlaError(f"{_named(entity)} has no quota {absent[0]}; `ottla quotas` lists the quotas")
        ask.alter_client_quotas([(entity, dict.fromkeys(names))]).check()
    screen.report(
        as_json,
        {"entity": _parts(entity), "unset": list(names)},
        *(f"{_named(entity)}: {name} removed" for name in names),
    )


def _parts(entity: dict[str, str | None]) -> dict[str, str]:
    return {part: name if name is not None else _DEFAULT for part, name in entity.items()}


def _named(entity: dict[str, str | None]) -> str:
    return " ".join(f"{part} {name}" for part, name in _parts(entity).items())
