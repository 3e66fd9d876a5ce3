"""Options that the tools share: the cluster, the output format, settings as KEY=VALUE, and shell completion."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ottla.cli.client_kind import settings_of
from ottla.cli.reach import DEFAULT_BOOTSTRAP, reach
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError

if TYPE_CHECKING:
    from ottla.cli.config_file import ConfigFile
    from ottla.client import Admin

F = TypeVar("F", bound=Callable[..., Any])


#: The port of a broker whose address says none.
_PORT = 9092
_COMMAND_LINE = click.core.ParameterSource.COMMANDLINE
#: Set when tables are wanted in a pipe; `screen` reads it.
TABLES_WANTED = "ottla.table"
#: Keys of the context's `meta`, which all tools of a run share.
_CONFIG, _PROFILE = "ottla.config", "ottla.profile"


def _inherit(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Let an option before a subcommand apply to it too: `ottla topics -b HOST:PORT list`."""
    name = parameter.name or ""
    here: click.Context | None = context
    while here is not None:
        if here.get_parameter_source(name) is _COMMAND_LINE:
            return here.params.get(name, value)
        here = here.parent
    return value


def _store_in_meta(key: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    def keep(context: click.Context, _: click.Parameter, value: str | None) -> None:
        if value is not None:
            context.meta[key] = value

    return keep


def _store_file(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Keep the value of --config. In Kafka's tools that option is a setting: do not drop it where no file is read."""
    if value is not None and "=" in value:
        raise click.UsageError(f"--config {value}: expected a file; for settings of a topic use --set KEY=VALUE")
    _store_in_meta(_CONFIG)(context, parameter, value)


def config_file(function: F) -> F:
    """Add --config and --profile; `opened_config` and `profile_name` return their values."""
    config = click.option(
        "--config",
        metavar="FILE",
        expose_value=False,
        is_eager=True,
        callback=_store_file,
        help="File with profiles (default: OTTLA_CONFIG, or ~/.config/ottla/config.toml).",
    )
    profile = click.option(
        "--profile",
        metavar="NAME",
        expose_value=False,
        is_eager=True,
        callback=_store_in_meta(_PROFILE),
        help="Profile of the cluster in that file (default: OTTLA_PROFILE).",
    )
    return config(profile(function))


def opened_config(*, to_change: bool = False) -> ConfigFile:
    """Return the config file. `to_change`: a named file that does not exist is no error, it will be created."""
    from ottla.cli.config_file import ConfigFile, default_path

    context = click.get_current_context(silent=True)
    named = context.meta.get(_CONFIG) if context else None
    if named is None:
        return ConfigFile(default_path(os.environ), must_exist="OTTLA_CONFIG" in os.environ and not to_change)
    return ConfigFile(named, must_exist=not to_change)


def profile_name() -> str | None:
    """Return the profile named by --profile or OTTLA_PROFILE."""
    context = click.get_current_context(silent=True)
    return (context.meta.get(_PROFILE) if context else None) or os.environ.get("OTTLA_PROFILE") or None


def _profile(bootstrap_given: bool) -> dict[str, str]:
    """Return the settings of the profile in force; none if a cluster was named by hand and no profile was."""
    name = profile_name()
    if name is None and bootstrap_given:
        return {}
    file = opened_config()
    name = name or file.current
    return {} if name is None else file.profile(name)


def _choose_bootstrap(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Choose the brokers: from -b, else the named profile, else the environment, else the current profile."""
    here: click.Context | None = context
    while here is not None:
        if here.get_parameter_source(parameter.name or "") is _COMMAND_LINE:
            brokers = _with_ports(_inherit(context, parameter, value))
            if not brokers:
                raise click.UsageError("-b names no broker (expected HOST:PORT)")
            return brokers
        here = here.parent
    # `ottla` itself asks no cluster: the tool reports a profile that cannot be read.
    return value if context.parent is None else _default_bootstrap()


def _default_bootstrap() -> str:
    """Return the brokers when there is no -b."""
    given = os.environ.get("OTTLA_BOOTSTRAP_SERVERS")
    return _with_ports(_profile(bool(given)).get("bootstrap.servers") or given or DEFAULT_BOOTSTRAP)


def _with_ports(bootstrap: str) -> str:
    """Add the default port: HOST becomes HOST:9092."""
    parts = [part.strip() for part in bootstrap.split(",") if part.strip()]
    return ",".join(part if re.search(r":[^\]:]*$", part.rpartition("://")[2]) else f"{part}:{_PORT}" for part in parts)


def at_most(most: int) -> Callable[[click.Context, click.Parameter, int | None], int | None]:
    """Refuse a number that a request has no room for. The help leaves that limit out, unlike click.IntRange's."""

    def check(_: click.Context, parameter: click.Parameter, value: int | None) -> int | None:
        if value is not None and value > most:
            raise click.BadParameter(f"{value} is more than {most}", param=parameter)
        return value

    return check


class Tool(click.Command):
    """A command that also accepts Kafka's --topic and --group for its arguments."""

    _ALIASES = (("--group", "--consumer-group"), ("--topic", "--topics"))

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        """Parse like click, after turning these options into arguments."""
        taken = {name for parameter in self.params for name in parameter.opts}
        for names in self._ALIASES:
            if names[0] not in taken and any(_completes(parameter, names[0][2:]) for parameter in self.params):
                arguments = _options_to_arguments(arguments, names)
        return super().parse_args(context, arguments)


def _completes(parameter: click.Parameter, what: str) -> bool:
    """Whether the parameter is the argument for topics or groups, recognized by its completion function."""
    complete = {"topic": complete_topic, "group": complete_group}[what]
    return isinstance(parameter, click.Argument) and parameter._custom_shell_complete is complete


def _options_to_arguments(arguments: list[str], names: tuple[str, ...]) -> list[str]:
    """Move the values of these options to the front, as arguments."""
    values, rest = [], []
    left = iter(arguments)
    for word in left:
        name, equals, value = word.partition("=")
        if name not in names:
            rest.append(word)
        elif equals:
            values += value.split(",")
        else:
            values += next(left, "").split(",")
    return [argument for argument in values if argument] + rest


class Commands(click.Group):
    """A tool with subcommands, whose help shows the whole first sentence of each."""

    command_class = Tool

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands without cutting lines at the terminal's width, as click does."""
        commands = [(name, self.get_command(context, name)) for name in self.list_commands(context)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, _first_sentence(command.help or "")) for name, command in commands if command is not None]
            )


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.partition("\n\n")[0].split())
    sentence, stop, _ = paragraph.partition(". ")
    return sentence + stop.rstrip()


_bootstrap = click.option(
    "-b",
    "--bootstrap-servers",
    "--bootstrap-server",
    "bootstrap",
    metavar="HOST:PORT",
    default=DEFAULT_BOOTSTRAP,
    callback=_choose_bootstrap,
    help="Brokers to connect to first (default: the profile's, OTTLA_BOOTSTRAP_SERVERS, or 127.0.0.1:9092).",
)
_client = click.option(
    "-X",
    "--client",
    "client",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_inherit,
    help="Client setting, e.g. security.protocol=SSL; may be repeated.",
)


def cluster(function: F) -> F:
    """Add the options of a tool that talks to a cluster."""
    return _bootstrap(_client(config_file(function)))


def _store_table(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        context.meta[TABLES_WANTED] = True


_headings = click.option(
    "--table",
    is_flag=True,
    expose_value=False,
    callback=_store_table,
    help="Print headings and aligned columns in a pipe too, for watch and less.",
)


def _store_json(context: click.Context, parameter: click.Parameter, value: bool) -> bool:
    # The root command reads this when it reports an error.
    context.meta["ottla.json"] = wanted = bool(_inherit(context, parameter, value))
    return wanted


def as_json(function: F) -> F:
    """Add --json and --table. With --json, an error is a JSON object too."""
    option = click.option(
        "--json", "as_json", is_flag=True, callback=_store_json, help="Print results as JSON, for programs."
    )
    return option(_headings(function))


def pairs(entries: tuple[str, ...], option: str = "") -> dict[str, str]:
    """Parse KEY=VALUE entries, arguments or values of an option. A usage error names an entry that is malformed."""
    settings = {}
    for entry in entries:
        key, equals, value = entry.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"{option} {entry}: expected KEY=VALUE".lstrip())
        settings[key.strip()] = value
    return settings


@contextmanager
def usage_errors() -> Iterator[None]:
    """Report an error of what parses an argument as wrong usage: exit code 2, and which help to read."""
    try:
        yield
    except OttlaError as error:
        raise click.UsageError(str(error)) from error


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation of an irreversible action; `yes` skips the question. Without a terminal it is an error."""
    from ottla.cli.screen import visible

    if not yes:
        check_terminal(question)
        try:
            if click.confirm(visible(question), err=True):
                return
        except click.exceptions.Abort:
            # The cursor is still on the question's line.
            click.echo(err=True)
        click.echo("nothing was changed", err=True)
        raise click.exceptions.Abort


def check_terminal(question: str) -> None:
    """Raise a usage error if there is no terminal to ask on."""
    import sys

    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} There is no terminal to ask on; add -y to answer yes")


def yes_option(function: F) -> F:
    """Add -y, for a command that asks for confirmation."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")(function)


def client_settings(bootstrap: str, client: tuple[str, ...]) -> dict[str, object]:
    """Return the settings of every client: the profile's, then those of -X, with secrets resolved."""
    from ottla.cli.config_file import check_command_line, resolved

    given = pairs(client, "-X")
    check_command_line(given)
    _check_settings(given)
    settings = {"client.id": "ottla-cli", **_profile(names_cluster()), **given, "bootstrap.servers": bootstrap}
    return dict(resolved(settings, prompt_once, os.environ))


def _check_settings(given: dict[str, str]) -> None:
    """Raise a usage error for a setting of -X that no client takes; a reference to a value is resolved later."""
    if not given:
        return
    from ottla.client.settings.reference import explain

    for name, value in given.items():
        try:
            setting = explain(name).setting
            if not value.startswith("${"):
                setting.parsed(value)
        except OttlaError as error:
            raise click.UsageError(f"-X {name}={value}: {error}") from error


def names_cluster() -> bool:
    """Whether -b or the environment names a cluster."""
    here = click.get_current_context(silent=True)
    while here is not None:
        if here.get_parameter_source("bootstrap") is _COMMAND_LINE:
            return True
        here = here.parent
    return "OTTLA_BOOTSTRAP_SERVERS" in os.environ


def prompt_once(name: str) -> str:
    """Prompt for a secret, once per run."""
    context = click.get_current_context()
    key = f"ottla.secret.{name}"
    if key not in context.meta:
        context.meta[key] = click.prompt(name, hide_input=True, err=True)
    secret: str = context.meta[key]
    return secret


@contextmanager
def admin(bootstrap: str, client: tuple[str, ...]) -> Iterator[Admin]:
    """Open an admin client. Raises OttlaError with advice if no broker answers."""
    with admin_of(client_settings(bootstrap, client)) as opened:
        yield opened


def other_cluster(where: str) -> dict[str, object]:
    """Return the settings of a second cluster: a profile's, or an address only, without the first cluster's secrets."""
    from ottla.cli.config_file import resolved

    file = opened_config()
    own = file.profile(where) if where in file.profiles else {"bootstrap.servers": _with_ports(where)}
    return dict(
        resolved({"client.id": "ottla-cli", "bootstrap.servers": DEFAULT_BOOTSTRAP} | own, prompt_once, os.environ)
    )


@contextmanager
def admin_of(settings: dict[str, object]) -> Iterator[Admin]:
    """Open an admin client with these settings."""
    reach(str(settings["bootstrap.servers"]), settings)
    from ottla.client import Admin

    with Admin(settings_of("admin", settings)) as opened:
        try:
            yield opened
        except KafkaError as error:
            name = error.message.removeprefix("there is no ").removeprefix("topic ")
            # "topic x has no partition 7" says all there is to say.
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or name == error.message or " " in name:
                raise
            raise OttlaError(f"there is no topic {name}{nearest_topic(opened, name)}") from error


def nearest_topic(client: Admin, name: str) -> str:
    """Return what follows "there is no topic NAME": the closest existing name, or how to list the topics."""
    from difflib import get_close_matches

    names = [topic.name for topic in client.list_topics()]
    close = get_close_matches(name, names, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    return "; `ottla topics` lists the topics" if names else "; the cluster has no topics"


def complete_topic(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete a topic's name; returns nothing when the cluster does not answer."""
    return _complete(context, incomplete, lambda client: [topic.name for topic in client.list_topics()])


def complete_group(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete a group's name; returns nothing when the cluster does not answer."""
    return _complete(context, incomplete, lambda client: [group.id for group in client.list_groups()])


def _complete(context: click.Context, incomplete: str, ask: Callable[[Admin], list[str]]) -> list[str]:
    try:
        given = context.params.get("bootstrap")
        bootstrap = given if given not in (None, DEFAULT_BOOTSTRAP) else _default_bootstrap()
        with admin(bootstrap, context.params.get("client") or ()) as client:
            return [name for name in ask(client) if name.startswith(incomplete)]
    except Exception:  # completion must print no errors
        return []
