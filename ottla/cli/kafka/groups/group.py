"""kafka-groups: list the groups of all types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cli.kafka.program.error import caused
from ottla.cli.kafka.program.option import BOOTSTRAP, COMMAND_CONFIG, Given, Option, Usage, forbid
from ottla.cli.kafka.program.tool import Failed, admin, admin_of, command
from ottla.kernel.error import KafkaError, OttlaError

if TYPE_CHECKING:
    from ottla.client.admin.result import GroupListing

_TYPES = ("classic", "consumer", "share", "streams")

OPTIONS = (
    BOOTSTRAP,
    COMMAND_CONFIG,
    Option("list", "List the groups."),
    Option("group-type", "Only groups of this type: classic, consumer, share or streams.", "type"),
    Option("protocol", "Only groups of this protocol type.", "protocol"),
    Option("consumer", "Only consumer groups of any kind, including classic and simple ones."),
    Option("share", "Only share groups."),
    Option("streams", "Only streams groups."),
)


def main() -> None:
    """The console script."""
    command(OPTIONS, "This tool helps to list groups of all types.", _run, usage_when_refused=True)


def _run(given: Given) -> int:
    if "bootstrap-server" not in given:
        raise Usage("Missing required option(s) [bootstrap-server]")
    if "list" not in given:
        raise Usage("Command must include exactly one action: --list.")
    kind = given["group-type"]
    if kind is not None and kind.lower() not in _TYPES:
        raise Failed("--group-type must be a valid group type.")
    for name in ("consumer", "share", "streams"):
        others = ("consumer", "group-type", "protocol", "share", "streams")
        forbid(given, name, [other for other in others if other != name])
    bootstrap, properties = given["bootstrap-server"], admin_of(given)
    try:
        with admin(bootstrap, properties) as client:
            groups = client.list_groups()
    except (KafkaError, OttlaError) as error:
        print(f"Error while executing groups command : {caused(error)}")
        return 1
    rows = [(group.id, group.type.value.capitalize(), group.protocol_type) for group in groups if _wanted(given, group)]
    width = max([20, *(len(cell) for row in rows for cell in row)])
    print(" ".join(f"{title:<{width}}" for title in ("GROUP", "TYPE", "PROTOCOL")))
    for row in rows:
        print("".join(f"{cell:<{width}} " for cell in row))
    return 0


def _wanted(given: Given, group: GroupListing) -> bool:
    kind, protocol = group.type.value, group.protocol_type
    if "group-type" in given:
        return kind == given["group-type"].lower() and given["protocol"] in (None, protocol)
    if "protocol" in given:
        return bool(protocol == given["protocol"])
    if "consumer" in given:
        return protocol in ("consumer", "") or kind == "consumer"
    if "share" in given:
        return kind == "share"
    return kind == "streams" if "streams" in given else True
