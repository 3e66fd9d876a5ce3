"""kafka-features: the features of a cluster, their levels, and the levels of a release."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ottla.cli.kafka.program.argument import CONTROLLER, SERVER, Command, Words, tool
from ottla.cli.kafka.program.error import caused, message
from ottla.cli.kafka.program.option import Option, int16, int32
from ottla.cli.kafka.program.tool import Failed, admin, load, tell
from ottla.operations.features import levels_of

if TYPE_CHECKING:
    from ottla.client import Admin

RELEASE = Option("release-version", "Release, e.g. 4.3 or 4.3-IV0.", "RELEASE_VERSION")
FEATURE = Option("feature", "Feature and level, e.g. metadata.version=5; may be repeated.", "FEATURE", often=True)
_DRY_RUN = Option("dry-run", "Only check whether it would work.")
_UNSAFE = Option("unsafe", "Allow it even if metadata may be lost.")
_METADATA = Option("metadata", "Deprecated: the level of metadata.version, as a release.", "METADATA")
COMMANDS = (
    Command(
        "describe",
        "Show the features and their levels.",
        (Option("node-id", "Node to ask (default: any).", "NODE_ID", int32),),
    ),
    Command("upgrade", "Raise levels.", (_METADATA, RELEASE, FEATURE, _DRY_RUN)),
    Command("downgrade", "Lower levels.", (_METADATA, RELEASE, FEATURE, _UNSAFE, _DRY_RUN)),
    Command(
        "disable",
        "Set features to level 0.",
        (Option("feature", "Feature; may be repeated.", "FEATURE", often=True), _UNSAFE, _DRY_RUN),
    ),
    Command("version-mapping", "Show the default levels of a release.", (RELEASE,)),
    Command(
        "feature-dependencies",
        "Show the dependencies of a feature level.",
        (Option("feature", FEATURE.help, "FEATURE", often=True, required=True),),
    ),
)


def main() -> None:
    """The console script."""
    tool(
        "kafka-features",
        "This tool manages feature flags in Kafka.",
        _run,
        options=(
            SERVER,
            CONTROLLER,
            Option("command-config", "Properties file for the client.", "COMMAND_CONFIG"),
        ),
        commands=COMMANDS,
        wrong=_wrong,
        failed=_failed,
    )


def _wrong(_: argparse.ArgumentParser, words: str) -> str:
    return f"Command line error: {words}. Type --help for help."


def _failed(error: Exception) -> int:
    tell(caused(error))
    return 1


def _run(words: Words) -> int:
    if words.command == "version-mapping":
        print_mapping(words["release-version"])
        return 0
    if words.command == "feature-dependencies":
        for entry in words["feature"]:
            print_needs(*name_and_level(entry))
        return 0
    server, controller = words["bootstrap-server"], words["bootstrap-controller"]
    if server and controller:
        raise Failed(_wrong_bootstrap("You cannot specify both --bootstrap-controller and --bootstrap-server."))
    if not server and not controller:
        raise Failed(_wrong_bootstrap("You must specify either --bootstrap-controller or --bootstrap-server."))
    with admin(server or controller, load(words["command-config"]) if words["command-config"] else {}) as client:
        if words.command == "describe":
            _describe(client, words["node-id"])
        else:
            _update(client, words)
    return 0


def _wrong_bootstrap(what: str) -> str:
    return f"Command line error: {what}. Type --help for help."


def _describe(client: Admin, node_id: int | None) -> None:
    if node_id is not None and node_id < 0:
        raise Failed(f"Invalid node id {node_id}: must be non-negative.")
    features = client.describe_features(node_id)
    for name in sorted(features):
        levels = features[name]
        low, high, now = (
            _level(name, level) for level in (levels.min_supported, levels.max_supported, levels.finalized or 0)
        )
        print(
            f"Feature: {name:<40}  SupportedMinVersion: {low:<15}  SupportedMaxVersion: {high:<15}  "
            f"FinalizedVersionLevel: {now:<15}  Epoch: {features.epoch}"
        )


def _level(name: str, level: int) -> str:
    from ottla.metadata.feature import METADATA_VERSIONS
    from ottla.metadata.image import METADATA_VERSION

    if name != METADATA_VERSION:
        return str(level)
    return METADATA_VERSIONS[level].text if level in METADATA_VERSIONS else f"UNKNOWN [{level}]"


def _update(client: Admin, words: Words) -> None:
    from ottla.client.admin.result import Downgrade

    verb, dry_run = words.command, words["dry-run"]
    wanted = _wanted(words)
    if not wanted:
        raise Failed(f"You must specify at least one feature to {verb}")
    downgrade = Downgrade.NO if verb == "upgrade" else Downgrade.UNSAFE if words["unsafe"] else Downgrade.SAFE
    results = client.update_features(wanted, downgrade=downgrade, validate_only=dry_run)
    for name in sorted(wanted):
        if name in results.errors:
            to = f"disable {name}" if verb == "disable" else f"{verb} {name} to {wanted[name]}"
            print(f"{'Can not' if dry_run else 'Could not'} {to}. {message(results.errors[name])}")
        else:
            to = "disabled." if verb == "disable" else f"{verb}d to {wanted[name]}."
            print(f"{name} {'can be' if dry_run else 'was'} {to}")
    if results.errors:
        raise Failed(f"{len(results.errors)} out of {len(wanted)} operation(s) failed.")


def _wanted(words: Words) -> dict[str, int]:
    wanted: dict[str, int] = {}
    if words["release-version"] and (words["metadata"] or words["feature"]):
        raise Failed("Can not specify `release-version` with other feature flags.")
    if words["release-version"]:
        levels = levels_of(words["release-version"])
        return {name: level for name, level in levels.items() if words.command != "upgrade" or level > 0}
    if words["metadata"]:
        print(" `metadata` flag is deprecated and may be removed in a future release.")
        wanted["metadata.version"] = levels_of(words["metadata"])["metadata.version"]
    for entry in words["feature"] or ():
        name, level = (entry, 0) if words.command == "disable" else name_and_level(entry)
        if name in wanted:
            raise Failed(f"Feature {name} was specified more than once.")
        wanted[name] = level
    return wanted


def name_and_level(text: str) -> tuple[str, int]:
    """Parse NAME=LEVEL."""
    name, equals, level = text.partition("=")
    if not equals:
        raise Failed(f"Can't parse feature=level string {text}: equals sign not found.")
    try:
        return name.strip(), int16(level.strip())
    except ValueError:
        raise Failed(f"Can't parse feature=level string {text}: unable to parse {level.strip()} as a short.") from None


def print_mapping(release: str | None) -> None:
    """Print the output of `version-mapping`, for this tool and kafka-storage."""
    from ottla.metadata.feature import METADATA_VERSION_LATEST, METADATA_VERSIONS

    levels = levels_of(release)
    named = release or METADATA_VERSIONS[METADATA_VERSION_LATEST].text
    for name, level in levels.items():
        print(f"{name}={level}" + (f" ({named})" if name == "metadata.version" else ""))


def print_needs(name: str, level: int, unknown_level: str = "No feature:{name} with feature level {level}") -> None:
    """Print the output of `feature-dependencies`, for this tool and kafka-storage."""
    from ottla.metadata.feature import METADATA_VERSIONS, SUPPORTED, needed

    if name == "metadata.version":
        if level not in METADATA_VERSIONS:
            raise Failed(f"Unknown metadata.version {level}")
        print(f"{name}={level} ({METADATA_VERSIONS[level].text}) has no dependencies.")
        return
    if name not in SUPPORTED:
        raise Failed(f"Unknown feature: {name}")
    if not 0 <= level <= SUPPORTED[name][1]:
        raise Failed(unknown_level.format(name=name, level=level))
    others = needed(name, level)
    print(f"{name}={level} requires:" if others else f"{name}={level} has no dependencies.")
    for other, least in others.items():
        print(f"    {other}={least} ({METADATA_VERSIONS[least].text})")
