"""`ottla profile`: named clusters with their client settings."""

from __future__ import annotations

import click

from ottla.cli.config_file import ConfigFile, is_secret
from ottla.cli.option import Commands, as_json, config_file, profile_name
from ottla.kernel.error import OttlaError

_name = click.argument("name")


@click.group(cls=Commands, invoke_without_command=True)
@config_file
@as_json
@click.pass_context
def profile(context: click.Context, as_json: bool) -> None:
    """List, show, choose and change profiles: named clusters with client settings. Without a command, list them."""
    if context.invoked_subcommand is None:
        context.invoke(list_, as_json=as_json)


def _file(*, to_change: bool = False) -> ConfigFile:
    from ottla.cli.option import opened_config

    return opened_config(to_change=to_change)


@profile.command("list")
@config_file
@as_json
def list_(as_json: bool) -> None:
    """List the profiles and their clusters."""
    from ottla.cli import screen

    file = _file()
    used = profile_name() or file.current
    rows = [
        {"profile": name, "bootstrap.servers": settings.get("bootstrap.servers"), "current": name == used}
        for name, settings in file.profiles.items()
    ]
    if as_json:
        screen.document(rows)
        return
    columns = [screen.Column("profile", "name"), screen.Column("brokers"), screen.Column("", "good")]
    empty = f"there are no profiles in {file.path}; ottla profile set NAME bootstrap.servers=HOST:PORT creates one"
    lines = [(row["profile"], row["bootstrap.servers"], "current" if row["current"] else None) for row in rows]
    screen.table(columns, lines, empty=empty)


@profile.command()
@config_file
@click.argument("name", required=False)
@as_json
def show(name: str | None, as_json: bool) -> None:
    """Show the settings of a profile (default: the current one); secrets stay hidden."""
    from ottla.cli import screen

    file = _file()
    chosen = name or profile_name() or file.current
    if chosen is None:
        raise OttlaError(f"no profile is current in {file.path}; choose one with ottla profile use NAME")
    settings = {
        key: "hidden" if is_secret(key) and not value.startswith("${") else value
        for key, value in sorted(file.profile(chosen).items())
    }
    if as_json:
        screen.document({"profile": chosen, "file": str(file.path), "settings": settings})
        return
    screen.heading(chosen, str(file.path))
    screen.table([screen.Column("setting", "name"), screen.Column("value")], list(settings.items()))


@profile.command()
@config_file
@_name
@as_json
def use(name: str, as_json: bool) -> None:
    """Make a profile the current one: the tools use its cluster from now on."""
    from ottla.cli import screen

    file = _file()
    file.use(name)
    screen.report(
        as_json, {"current": name}, f"{name} is current ({file.profiles[name].get('bootstrap.servers', '-')})"
    )


@profile.command("set")
@config_file
@_name
@click.argument("changes", nargs=-1, required=True, metavar="KEY=VALUE...")
@as_json
def set_(name: str, changes: tuple[str, ...], as_json: bool) -> None:
    """Set settings of a new or existing profile. KEY= removes a setting.

    The value of a secret is prompted for (ottla profile set prod sasl.password) and refused on the command line.
    '${env:NAME}', '${file:PATH}' and '${prompt}' also keep it out of the file.
    """
    from ottla.cli import screen
    from ottla.client.settings.reference import explain

    wanted: dict[str, str | None] = {}
    for change in changes:
        key, equals, value = change.partition("=")
        key = key.strip()
        if not equals and not is_secret(key):
            raise click.UsageError(f"{change}: expected KEY=VALUE")
        if value or not equals:
            # A removal takes any name: the file may have one that no client knows.
            explain(key)
        if is_secret(key) and equals and value and not value.startswith("${"):
            raise OttlaError(f"every user of this machine can see {key} on the command line; give {key} alone")
        wanted[key] = value or None if equals else _asked(key)
    _file(to_change=True).change(name, wanted)
    shown = [
        f"{key} is {'set' if is_secret(key) else value}" if value else f"{key} is removed"
        for key, value in wanted.items()
    ]
    screen.report(as_json, {"profile": name, "set": sorted(wanted)}, *(f"{name}: {text}" for text in shown))


def _asked(key: str) -> str:
    import sys

    if sys.stdin.isatty():
        secret: str = click.prompt(key, hide_input=True, err=True)
        return secret
    secret = sys.stdin.readline().rstrip("\r\n")
    if not secret:
        raise OttlaError(f"stdin is empty (expected {key} on its first line)")
    return secret
