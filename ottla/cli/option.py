"""What the tools have in common: where the cluster is, how results come, settings as KEY=VALUE, and completion."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ottla.kernel.error import ErrorCode, KafkaError, OttlaError

if TYPE_CHECKING:
    import socket

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


class Commands(click.Group):
    """A tool with commands of its own: the first sentence of each stands in its help, whole."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Click would cut the lines where a small terminal ends."""
        found = [(name, self.get_command(context, name)) for name in self.list_commands(context)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, _first_sentence(each.help or "")) for name, each in found if each is not None])


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.partition("\n\n")[0].split())
    sentence, stop, _ = paragraph.partition(". ")
    return sentence + stop.rstrip()


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


def confirm(question: str, *, yes: bool) -> None:
    """Ask before what cannot be taken back. Without a terminal there is nobody to ask: -y says yes there."""
    if not yes:
        check_terminal(question)
        click.confirm(question, abort=True, err=True)


def check_terminal(question: str) -> None:
    """A usage error where a question could not be answered."""
    import sys

    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} There is no terminal to ask on: add -y for yes")


def yes_option(function: F) -> F:
    """-y, for what asks."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask.")(function)


def client_settings(bootstrap: str, client: tuple[str, ...]) -> dict[str, object]:
    """What every client of the tools starts from."""
    return {"bootstrap.servers": bootstrap, "client.id": "ottla-cli", **pairs(client, "-X")}


@contextmanager
def admin(bootstrap: str, client: tuple[str, ...]) -> Iterator[Admin]:
    """An admin client that has reached the cluster, or an error that says how to get one."""
    settings = client_settings(bootstrap, client)
    reach(bootstrap, settings)
    from ottla.client import Admin

    with Admin(settings) as found:
        try:
            yield found
        except KafkaError as error:
            name = error.message.removeprefix("topic ")
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or name == error.message:
                raise
            raise OttlaError(f"there is no topic {name}{nearest_topic(found, name)}") from error


def nearest_topic(client: Admin, name: str) -> str:
    """What to say after "there is no topic NAME": the nearest that is there, or how to see them."""
    from difflib import get_close_matches

    names = [topic.name for topic in client.list_topics()]
    close = get_close_matches(name, names, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    return "; `ottla topics` lists those that are there" if names else ", nor any other"


def reach(bootstrap: str, settings: Mapping[str, object]) -> None:
    """Raise OttlaError when no broker is at any of the addresses; quicker than a client that keeps trying.

    A connection is not enough: what listens must answer as a broker does, or speak TLS when that is asked for.
    """
    plain = str(settings.get("security.protocol", "PLAINTEXT")).upper().endswith("PLAINTEXT")
    import socket

    refused = []
    for address in filter(None, (each.strip() for each in bootstrap.split(","))):
        host, colon, port = address.rpartition("://")[2].rpartition(":")
        if not colon or not port.isdecimal() or not host:
            raise click.UsageError(f"-b {address}: it takes HOST:PORT, several separated by commas")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), _PATIENCE_MS / 1000) as connection:
                if _is_broker(connection) if plain else _speaks_tls(connection):
                    return
            refused.append(
                f"{address}: what listens there is no Kafka broker, or one that wants TLS"
                if plain
                else f"{address}: what listens there speaks no TLS: is security.protocol right?"
            )
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


#: ApiVersions 0 with a correlation id of its own and no client id, which every broker answers before anything else.
_HELLO = bytes.fromhex("0000000a 0012 0000 6f74746c ffff")


def _is_broker(connection: socket.socket) -> bool:
    connection.sendall(_HELLO)
    answer = b""
    while len(answer) < 8:
        try:
            more = connection.recv(8 - len(answer))
        except ConnectionError:
            return False
        if not more:
            return False
        answer += more
    return answer[4:] == _HELLO[8:12]


def _speaks_tls(connection: socket.socket) -> bool:
    """Does it shake hands, or refuse as one who could? Who it is, the client checks."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        context.wrap_socket(connection).close()
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except ConnectionError:
        return False
    return True


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
