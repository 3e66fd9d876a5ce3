"""kafka-client-metrics: the metrics that clients push to the brokers, and which clients push them (KIP-714)."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from ottla.cli.kafka.program.error import message
from ottla.cli.kafka.program.option import BOOTSTRAP, COMMAND_CONFIG, Given, Option, Refused, Usage, forbid
from ottla.cli.kafka.program.tool import Failed, admin, admin_of, command
from ottla.kernel.error import KafkaError, OttlaError

if TYPE_CHECKING:
    from ottla.client import Admin, ConfigResource

_ACTIONS = ("alter", "delete", "describe", "list")
OPTIONS = (
    BOOTSTRAP,
    COMMAND_CONFIG,
    Option("alter", "Create or change a subscription."),
    Option("delete", "Delete a subscription."),
    Option("describe", "Show subscriptions."),
    Option("list", "List the names of subscriptions."),
    Option("name", "Name of the subscription.", "name"),
    Option("generate-name", "Generate a name."),
    Option("interval", "Push interval in milliseconds; empty: the default.", "push interval"),
    Option("match", "Selector of clients, k1=v1,k2=v2.", "k1=v1,k2=v2", separator=","),
    Option("metrics", "Prefixes of metric names, m1,m2.", "m1,m2", separator=","),
)


def main() -> None:
    """The console script."""
    about = "This tool helps to manipulate and describe client metrics configurations."
    command(OPTIONS, about, _run, usage_when_refused=True)


def _run(given: Given) -> int:
    _check(given)
    bootstrap, properties = given["bootstrap-server"], admin_of(given)
    act = {"alter": _alter, "delete": _delete, "describe": _describe, "list": _list}
    try:
        with admin(bootstrap, properties) as client:
            act[next(action for action in _ACTIONS if action in given)](given, client)
    except (KafkaError, OttlaError, Failed, Refused) as error:
        print(f"Error while executing client metrics command : {message(error)}")
        return 1
    return 0


def _check(given: Given) -> None:
    if sum(action in given for action in _ACTIONS) != 1:
        raise Usage("Command must include exactly one action: --alter, --delete, --describe or --list.")
    if "bootstrap-server" not in given:
        raise Failed("--bootstrap-server must be specified.")
    settings = ("generate-name", "interval", "match", "metrics")
    forbid(given, "delete", settings)
    forbid(given, "describe", settings)
    forbid(given, "list", ("name", *settings))
    if "alter" in given:
        if ("name" in given) == ("generate-name" in given):
            raise Failed("One of --name or --generate-name must be specified with --alter.")
        if given["interval"] and not given["interval"].lstrip("-").isdecimal():
            raise Failed("Invalid interval value. Enter an integer, or leave empty to reset.")
    if "delete" in given and "name" not in given:
        raise Failed("A client metrics resource name must be specified with --delete.")


def _resource(name: str) -> ConfigResource:
    from ottla.client import ConfigResource, ResourceType

    return ConfigResource(ResourceType.CLIENT_METRICS, name)


def _names(client: Admin) -> list[str]:
    from ottla.client import ResourceType

    return sorted(resource.name for resource in client.list_config_resources([ResourceType.CLIENT_METRICS]))


def _alter(given: Given, client: Admin) -> None:
    name = str(uuid.uuid4()) if "generate-name" in given else given["name"]
    texts = {"interval.ms": given["interval"]} if "interval" in given else {}
    texts |= {
        setting_name: ",".join(given.values(setting_name))
        for setting_name in ("metrics", "match")
        if setting_name in given
    }
    client.alter_config(_resource(name), {setting: text or None for setting, text in texts.items()})
    print(f"Altered client metrics config for {name}.")


def _delete(given: Given, client: Admin) -> None:
    resource = _resource(given["name"])
    client.alter_config(resource, dict.fromkeys(client.describe_config(resource)))
    print(f"Deleted client metrics config for {given['name']}.")


def _describe(given: Given, client: Admin) -> None:
    names = _names(client)
    if "name" in given:
        if given["name"] not in names:
            print(f"The client metric resource {given['name']} doesn't exist and doesn't have dynamic config.")
            return
        names = [given["name"]]
    for name in names:
        print(f"Client metrics configs for {name} are:")
        for setting, entry in sorted(client.describe_config(_resource(name)).items()):
            print(f"  {setting}={'null' if entry.value is None else entry.value}")


def _list(_: Given, client: Admin) -> None:
    print("\n".join(_names(client)))
