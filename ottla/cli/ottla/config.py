"""`ottla configs`: show, explain and change the settings of topics, nodes and groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.amount import setting_value
from ottla.cli.option import Commands, admin, as_json, cluster, complete_group, complete_topic, pairs
from ottla.kernel.error import OttlaError
from ottla.operations.configs import alter, check_known, check_there, own
from ottla.operations.nearest import nearest

if TYPE_CHECKING:
    from ottla.client import ConfigResource
    from ottla.settings.schema import Setting

#: The kinds that this package declares.
_KINDS = ("topic", "broker", "group")
_RESOURCES = {
    "topic": "TOPIC",
    "broker": "BROKER",
    "group": "GROUP",
    "metrics": "CLIENT_METRICS",
    "logger": "BROKER_LOGGER",
}
_kind = click.argument("kind", type=click.Choice(list(_RESOURCES)), metavar="|".join(_RESOURCES))


def _complete_name(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete a name of the kind that comes before it."""
    complete = {"topic": complete_topic, "group": complete_group}.get(context.params.get("kind", ""))
    return complete(context, parameter, incomplete) if complete else []


_name = click.argument("name", shell_complete=_complete_name)
_SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": "topic",
    "DYNAMIC_GROUP_CONFIG": "group",
    "DYNAMIC_BROKER_CONFIG": "this node",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "all nodes",
    "STATIC_BROKER_CONFIG": "file",
    "DYNAMIC_CLIENT_METRICS_CONFIG": "metrics",
    "DYNAMIC_BROKER_LOGGER_CONFIG": "logger",
    "DEFAULT_CONFIG": "default",
}


@click.group(cls=Commands)
@cluster
def configs(bootstrap: str, client: tuple[str, ...]) -> None:
    """Show, explain and change settings."""


def _resource(kind: str, name: str) -> ConfigResource:
    from ottla.client import ConfigResource, ResourceType

    if kind == "broker" and name != "all" and not name.isdecimal():
        raise click.UsageError(f"invalid broker: {name} (expected a broker's number, or all)")
    if kind == "logger" and not name.isdecimal():
        raise click.UsageError(f"invalid broker: {name} (expected the number of the loggers' broker)")
    return ConfigResource(ResourceType[_RESOURCES[kind]], "" if kind == "broker" and name == "all" else name)


def complete_setting(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete a setting's name, with a = if a value follows. Needs no cluster."""
    kind = context.params.get("kind") or "topic"
    if kind not in _KINDS or "=" in incomplete:
        return []
    equals = "=" if context.command.name in ("set", "create") else ""
    names = (setting.name for setting in _declared(kind).values() if not setting.internal)
    return sorted(f"{name}{equals}" for name in names if name.startswith(incomplete))


@configs.command()
@cluster
@_kind
@_name
@click.argument("settings", nargs=-1, metavar="[SETTING...]", shell_complete=complete_setting)
@click.option("-a", "--all", "everything", is_flag=True, help="Include settings at their defaults.")
@as_json
def show(
    bootstrap: str,
    client: tuple[str, ...],
    kind: str,
    name: str,
    settings: tuple[str, ...],
    everything: bool,
    as_json: bool,
) -> None:
    """Show the settings of a topic, a broker (its number, or all), a group or client metrics, or the levels of a
    broker's loggers, and where they come from.
    """
    from ottla.cli import screen

    resource = _resource(kind, name)
    with admin(bootstrap, client) as ask:
        check_there(ask, resource)
        entries = ask.describe_config(resource, settings or None)
        check_known(ask, resource, [setting for setting in settings if setting not in entries])
    shown = [entry for entry in entries.values() if everything or settings or not entry.is_default]
    if as_json:
        screen.document(
            [
                {
                    "setting": entry.name,
                    "value": entry.value,
                    "source": entry.source.name,
                    "read_only": entry.read_only,
                    "sensitive": entry.sensitive,
                    "type": entry.type,
                }
                for entry in sorted(shown, key=lambda item: item.name)
            ]
        )
        return
    rows = []
    for entry in sorted(shown, key=lambda item: item.name):
        value = screen.coloured("hidden", "dim") if entry.sensitive else entry.value
        source = _SOURCES.get(entry.source.name, entry.source.name.lower())
        rows.append((entry.name, value, screen.coloured(source, "dim" if entry.is_default else "cyan")))
    columns = [screen.Column("setting", "name"), screen.Column("value"), screen.Column("from")]
    screen.table(columns, rows, empty=f"nothing is set for {kind} {name}; --all shows the defaults")


@configs.command("set")
@cluster
@_kind
@_name
@click.argument("changes", nargs=-1, required=True, metavar="KEY=VALUE...", shell_complete=complete_setting)
@as_json
def set_(
    bootstrap: str, client: tuple[str, ...], kind: str, name: str, changes: tuple[str, ...], as_json: bool
) -> None:
    """Change settings of a topic, a broker (its number, or all), a group or client metrics, or the level of a broker's
    logger, without a restart.
    """
    from ottla.cli import screen

    wanted = {key: setting_value(key, value) for key, value in pairs(changes).items()}
    with admin(bootstrap, client) as ask:
        alter(ask, _resource(kind, name), dict(wanted))
    screen.report(
        as_json,
        {"kind": kind, "name": name, "set": wanted},
        *(f"{kind} {name}: {key}={value}" for key, value in wanted.items()),
    )


@configs.command()
@cluster
@_kind
@_name
@click.argument("settings", nargs=-1, required=True, metavar="SETTING...", shell_complete=complete_setting)
@as_json
def unset(
    bootstrap: str, client: tuple[str, ...], kind: str, name: str, settings: tuple[str, ...], as_json: bool
) -> None:
    """Reset settings to their defaults."""
    from ottla.cli import screen

    with admin(bootstrap, client) as ask:
        alter(ask, _resource(kind, name), dict.fromkeys(settings))
    screen.report(
        as_json,
        {"kind": kind, "name": name, "unset": list(settings)},
        *(f"{kind} {name}: {setting} is the default again" for setting in settings),
    )


@configs.command()
@click.argument("pattern", default="", shell_complete=complete_setting)
@click.option("-k", "--kind", type=click.Choice(_KINDS), help="Only settings of this kind.")
@as_json
def explain(pattern: str, kind: str | None, as_json: bool) -> None:
    """Explain settings: the one named PATTERN, or all with PATTERN in their name or meaning. Needs no cluster."""
    from ottla.cli import screen

    matches = [
        (setting_kind, setting)
        for setting_kind in _KINDS
        if kind in (None, setting_kind)
        for setting in _declared(setting_kind).values()
        if not setting.internal and (pattern in setting.name or pattern.lower() in setting.doc.lower())
    ]
    exact = [(setting_kind, setting) for setting_kind, setting in matches if setting.name == pattern]
    if not matches:
        names = sorted(name for setting_kind in _KINDS for name in _declared(setting_kind))
        raise OttlaError(f"no setting has {pattern} in its name or meaning{nearest(pattern, names)}")
    if as_json:
        screen.document([_about(setting_kind, setting) for setting_kind, setting in exact or matches])
    elif exact:
        for setting_kind, setting in exact:
            _explain(setting_kind, setting)
    else:
        columns = [
            screen.Column("setting", "name"),
            screen.Column("of", "dim"),
            screen.Column("default"),
            screen.Column("meaning"),
        ]
        rows = [
            (setting.name, setting_kind, _shown_default(setting), setting.documentation)
            for setting_kind, setting in matches
        ]
        screen.table(columns, rows)


@configs.command("list")
@cluster
@as_json
def list_(bootstrap: str, client: tuple[str, ...], as_json: bool) -> None:
    """List the topics, brokers, groups and client metrics with settings of their own."""
    from ottla.cli import screen

    with admin(bootstrap, client) as ask:
        resources = ask.list_config_resources()
        entries = ask.describe_configs(resources).succeeded
    words = {constant: word for word, constant in _RESOURCES.items()}
    rows: list[dict[str, Any]] = [
        {
            "kind": words[resource.type.name],
            "name": resource.name or "all",
            "settings": {name: entry.value for name, entry in own(entries[resource], resource).items()},
        }
        for resource in sorted(resources, key=lambda item: (item.type, item.name))
        if resource in entries and resource.type.name != "BROKER_LOGGER"
    ]
    rows = [row for row in rows if row["settings"]]
    if as_json:
        screen.document(rows)
        return
    columns = [screen.Column("kind", "dim"), screen.Column("name", "name"), screen.Column("setting")]
    lines = [(row["kind"], row["name"], key, value) for row in rows for key, value in row["settings"].items()]
    screen.table([*columns, screen.Column("value")], lines, empty="nothing is set")


def _declared(kind: str) -> Mapping[str, Setting[Any]]:
    from ottla.settings.group.settings import GroupSettings
    from ottla.settings.server.own import OwnSettings
    from ottla.settings.server.settings import ServerSettings
    from ottla.settings.topic.settings import TopicSettings

    if kind == "broker":
        return {**ServerSettings.declared(), **OwnSettings.declared()}
    return (TopicSettings if kind == "topic" else GroupSettings).declared()


def _shown_default(setting: Setting[Any]) -> str:
    text = setting.default_text
    return {"9223372036854775807": "no limit", "2147483647": "no limit"}.get(text or "", text or "-")


def _about(kind: str, setting: Setting[Any]) -> dict[str, object]:
    return {
        "setting": setting.name,
        "of": kind,
        "type": setting.type.name.lower(),
        "default": setting.default_text,
        "takes": setting.valid_values,
        "importance": setting.importance.lower(),
        "mode": setting.mode if kind == "broker" else "any time",
        "served": setting.served,
        "meaning": setting.doc,
    }


def _explain(kind: str, setting: Setting[Any]) -> None:
    from ottla.cli import screen

    about = _about(kind, setting)
    screen.heading(setting.name, f"of a {kind}")
    lines = [("meaning", setting.documentation), ("takes", about["takes"]), ("default", _shown_default(setting))]
    if setting.name.endswith(".ms") and isinstance(setting.default, int) and 0 < setting.default < 1 << 62:
        lines[-1] = ("default", f"{setting.default_text} ({screen.duration(setting.default)})")
    lines.append(
        (
            "changes",
            {
                "read-only": "in server.properties only",
                "per-broker": "per node, without a restart",
                "cluster-wide": "per node or for all nodes, without a restart",
            }.get(str(about["mode"]), "any time"),
        )
    )
    if setting.broker:
        lines.append(("else", f"{setting.broker} of the node"))
    screen.table([screen.Column("", "dim"), screen.Column("")], lines, headless=True)
