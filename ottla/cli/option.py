"""What the tools have in common: where the cluster is, how results come, settings as KEY=VALUE, and completion."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ottla.kernel.error import OttlaError

if TYPE_CHECKING:
    from ottla.client import Admin

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
#: How long a tool tries to reach the cluster before it says that nobody answers.
_PATIENCE_MS = 4_000


def _inherit(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """What is said before a subcommand holds for it too: `ottla topics -b HOST:PORT list`."""
    name = parameter.name or ""
    said = click.core.ParameterSource.COMMANDLINE
    parent = context.parent
    if context.get_parameter_source(name) is not said and parent and parent.get_parameter_source(name) is said:
        return parent.params[name]
    return value


_bootstrap = click.option(
    "-b",
    "--bootstrap-servers",
    "bootstrap",
    metavar="HOST:PORT",
    envvar="OTTLA_BOOTSTRAP_SERVERS",
    default=DEFAULT_BOOTSTRAP,
    show_default=True,
    callback=_inherit,
    help="Brokers to ask first.",
)
_client = click.option(
    "-X",
    "--client",
    "client",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_inherit,
    help="A setting of the client, e.g. security.protocol=SSL.",
)


def cluster(function: F) -> F:
    """The options of a tool that talks to a cluster."""
    return _bootstrap(_client(function))


def as_json(function: F) -> F:
    """--json, for programs."""
    option = click.option("--json", "as_json", is_flag=True, callback=_inherit, help="Results as JSON, for programs.")
    return option(function)


def pairs(entries: tuple[str, ...], option: str) -> dict[str, str]:
    """KEY=VALUE entries. A usage error names the one that is not."""
    found = {}
    for entry in entries:
        key, equals, value = entry.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"{option} {entry}: it takes KEY=VALUE")
        found[key.strip()] = value
    return found


def client_settings(bootstrap: str, client: tuple[str, ...]) -> dict[str, object]:
    """What every client of the tools starts from."""
    return {"bootstrap.servers": bootstrap, "client.id": "ottla-cli", **pairs(client, "-X")}


@contextmanager
def admin(bootstrap: str, client: tuple[str, ...]) -> Iterator[Admin]:
    """An admin client that has reached the cluster, or an error that says how to get one."""
    reach(bootstrap)
    from ottla.client import Admin

    with Admin(client_settings(bootstrap, client)) as found:
        yield found


def reach(bootstrap: str) -> None:
    """Raise OttlaError when nobody listens at any of the addresses; quicker than a client that keeps trying."""
    import socket

    refused = []
    for address in filter(None, (each.strip() for each in bootstrap.split(","))):
        host, colon, port = address.rpartition("://")[2].rpartition(":")
        if not colon or not port.isdecimal() or not host:
            raise click.UsageError(f"-b {address}: it takes HOST:PORT, several separated by commas")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _PATIENCE_MS / 1000).close()
            return
        except socket.gaierror:
            refused.append(f"no machine is called {host}")
        except (TimeoutError, OSError) as error:
            reason = "does not answer" if isinstance(error, TimeoutError) else "nobody listens there"
            refused.append(f"{address}: {reason}")
    mend = (
        "start a node with `ottla start`, or name a cluster with -b HOST:PORT"
        if bootstrap == DEFAULT_BOOTSTRAP
        else "is it running, and is that its address?"
    )
    raise OttlaError(f"no broker at {bootstrap} ({'; '.join(refused)}); {mend}")


def complete_topic(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Names of topics for the shell; nothing when the cluster cannot be asked."""
    return _complete(context, incomplete, lambda client: [topic.name for topic in client.list_topics()])


def complete_group(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Names of groups for the shell; nothing when the cluster cannot be asked."""
    return _complete(context, incomplete, lambda client: [group.id for group in client.list_groups()])


def _complete(context: click.Context, incomplete: str, ask: Callable[[Admin], list[str]]) -> list[str]:
    bootstrap = context.params.get("bootstrap") or DEFAULT_BOOTSTRAP
    try:
        with admin(bootstrap, context.params.get("client") or ()) as client:
            return [name for name in ask(client) if name.startswith(incomplete)]
    except Exception:  # a shell that completes shows nothing else
        return []
