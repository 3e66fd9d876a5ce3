"""kafka-delegation-tokens: create, renew, expire and describe delegation tokens (KIP-48)."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from datetime import datetime
from typing import TYPE_CHECKING

from ottla.cli.kafka.program.error import caused
from ottla.cli.kafka.program.option import BOOTSTRAP, Given, Option, Usage, forbid, int64, require
from ottla.cli.kafka.program.tool import Failed, admin, command, load

if TYPE_CHECKING:
    from ottla.client import Admin, DelegationToken

_ACTIONS = ("create", "renew", "expire", "describe")
OPTIONS = (
    BOOTSTRAP,
    Option("command-config", "REQUIRED: properties file for the client; tokens need an authenticated user.", ""),
    Option("create", "Create a token."),
    Option("renew", "Renew a token."),
    Option("expire", "Expire a token."),
    Option("describe", "Show the tokens of owners (default: of this user)."),
    Option("owner-principal", "Owner of the token, such as User:ann; may be repeated.", "", optional=True),
    Option("renewer-principal", "Principal that may renew the token; may be repeated.", "", optional=True),
    Option("max-life-time-period", "Longest life in milliseconds; -1: the broker's limit.", "", int64, optional=True),
    Option("renew-time-period", "New time to expiry in milliseconds; -1: the broker's.", "", int64, optional=True),
    Option("expiry-time-period", "New time to expiry in milliseconds; -1: at once.", "", int64, optional=True),
    Option("hmac", "HMAC of the token.", "", optional=True),
)
_LINE = "\n{:<15} {:<30} {:<15} {:<15} {:<25} {:<15} {:<15} {:<15}"


def main() -> None:
    """The console script."""
    command(OPTIONS, "This tool helps to create, renew, expire, or describe delegation tokens.", _run)


def _run(given: Given) -> int:
    if sum(action in given for action in _ACTIONS) != 1:
        raise Usage("Command must include exactly one action: --create, --renew, --expire or --describe")
    _check(given)
    act = {"create": _create, "renew": _renew, "expire": _expire, "describe": _describe}
    with admin(given["bootstrap-server"], load(given["command-config"])) as client:
        act[next(action for action in _ACTIONS if action in given)](given, client)
    return 0


def _check(given: Given) -> None:
    require(given, "bootstrap-server", "command-config")
    if "create" in given:
        require(given, "max-life-time-period")
    if "renew" in given:
        require(given, "hmac", "renew-time-period")
    if "expire" in given:
        require(given, "hmac", "expiry-time-period")
    forbid(given, "create", ("hmac", "renew-time-period", "expiry-time-period"))
    forbid(given, "renew", ("renewer-principal", "max-life-time-period", "expiry-time-period", "owner-principal"))
    forbid(given, "expire", ("renew", "max-life-time-period", "renew-time-period", "owner-principal"))
    forbid(given, "describe", ("renew-time-period", "max-life-time-period", "hmac", "expiry-time-period"))


def _principals(given: Given, option: str) -> list[str]:
    principals = [text.strip() for text in given.values(option)]
    for principal in principals:
        if not all(principal.partition(":")[::2]):
            raise Failed(f"expected a string in format principalType:principalName but got {principal}")
    return principals


def _create(given: Given, client: Admin) -> None:
    renewers, lifetime_ms = _principals(given, "renewer-principal"), given["max-life-time-period"]
    print(
        f"Calling create token operation with renewers :[{', '.join(renewers)}] , max-life-time-period :{lifetime_ms}"
    )
    owners = _principals(given, "owner-principal")
    token = client.create_delegation_token(
        renewers=renewers, max_lifetime_ms=lifetime_ms, owner=owners[0] if owners else None
    )
    print(f"Created delegation token with tokenId : {token.id}")
    _print_tokens([token])


def _renew(given: Given, client: Admin) -> None:
    hmac, period_ms = given["hmac"], given["renew-time-period"]
    print(f"Calling renew token operation with hmac :{hmac} , renew-time-period :{period_ms}")
    expiry = client.renew_delegation_token(_bytes(hmac), renew_period_ms=period_ms)
    print(f"Completed renew operation. New expiry date : {_date(expiry)}", end="")


def _expire(given: Given, client: Admin) -> None:
    hmac, period_ms = given["hmac"], given["expiry-time-period"]
    print(f"Calling expire token operation with hmac :{hmac} , expire-time-period :{period_ms}")
    expiry = client.expire_delegation_token(_bytes(hmac), expiry_period_ms=period_ms)
    print(f"Completed expire operation. New expiry date : {_date(expiry)}", end="")


def _bytes(hmac: str) -> bytes:
    try:
        return b64decode(hmac, validate=True)
    except binascii.Error as error:
        raise Failed(f"invalid HMAC {hmac}: {caused(error)}") from error


def _describe(given: Given, client: Admin) -> None:
    owners = _principals(given, "owner-principal")
    if owners:
        print(f"Calling describe token operation for owners: [{', '.join(owners)}]")
    else:
        print("Calling describe token operation for current user.")
    # The Java tool sends an empty list, which the broker takes as all tokens that this user may see.
    tokens = client.describe_delegation_tokens(owners or None)
    print(f"Total number of tokens : {len(tokens)}", end="")
    _print_tokens(tokens)


def _print_tokens(tokens: list[DelegationToken]) -> None:
    heads = ("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE")
    print(_LINE.format(*heads))
    for token in tokens:
        dates = (_date(token.issued_timestamp), _date(token.expiry_timestamp), _date(token.max_timestamp))
        renewers = f"[{', '.join(token.renewers)}]"
        print(_LINE.format(token.id, b64encode(token.hmac).decode(), token.owner, token.requester, renewers, *dates))


def _date(timestamp_ms: int) -> str:
    return f"{datetime.fromtimestamp(timestamp_ms / 1000).astimezone():%Y-%m-%dT%H:%M}"
