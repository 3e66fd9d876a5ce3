"""kafka-storage: format the log directories of a node, and show them."""

from __future__ import annotations

from ottla.cli.kafka.metadata.feature import FEATURE, RELEASE, name_and_level, print_mapping, print_needs
from ottla.cli.kafka.program.argument import Command, Words, tool
from ottla.cli.kafka.program.option import Option
from ottla.cli.kafka.program.tool import Failed, load
from ottla.host.config_providers import server_settings

_CONFIG = Option("config", "The node's server.properties.", "CONFIG", short="c", required=True)
_SHORT_RELEASE = Option(RELEASE.name, RELEASE.help, RELEASE.value, short="r")
_SHORT_FEATURE = Option(FEATURE.name, FEATURE.help, FEATURE.value, short="f", often=True)
COMMANDS = (
    Command("info", "Show the log directories of this node.", (_CONFIG,)),
    Command(
        "format",
        "Format the log directories of this node.",
        (
            _CONFIG,
            Option("cluster-id", "Id of the cluster.", "CLUSTER_ID", short="t", required=True),
            Option(
                "add-scram",
                "Initial SCRAM credential, e.g. SCRAM-SHA-256=[name=alice,password=alice-secret].",
                "ADD_SCRAM",
                short="S",
                often=True,
            ),
            Option("ignore-formatted", "Skip directories that are already formatted.", short="g"),
            _SHORT_RELEASE,
            _SHORT_FEATURE,
        ),
        at_most_one=(
            (
                Option("standalone", "Start a quorum of this controller alone.", short="s"),
                Option("no-initial-controllers", "Start no quorum: this controller joins one later.", short="N"),
                Option(
                    "initial-controllers",
                    "Controllers of a new quorum, id@host:port:directory, separated by commas.",
                    "INITIAL_CONTROLLERS",
                    short="I",
                ),
            ),
        ),
    ),
    Command("version-mapping", "Show the default levels of a release.", (_SHORT_RELEASE,)),
    Command(
        "feature-dependencies",
        "Show the dependencies of a feature level.",
        (Option(FEATURE.name, FEATURE.help, FEATURE.value, short="f", often=True, required=True),),
    ),
    Command("random-uuid", "Print a random id for a new cluster."),
)


def main() -> None:
    """The console script."""
    tool("kafka-storage", "The Kafka storage tool.", _run, commands=COMMANDS)


def _run(words: Words) -> int:
    if words.command == "info":
        return _info(words)
    if words.command == "format":
        _format(words)
    elif words.command == "version-mapping":
        print_mapping(words["release-version"])
    elif words.command == "feature-dependencies":
        for entry in words["feature"]:
            name, equals, level = entry.partition("=")
            if not equals:
                raise Failed(
                    f"Invalid feature format: {entry}. Expected format: 'feature=version' (e.g. 'group.version=1')"
                )
            if not level.strip().isdecimal():
                raise Failed(f"Invalid version format: {level.strip()} for feature {name.strip()}")
            unknown = "Feature level {level} is not supported for feature {name}"
            print_needs(name.strip(), int(level), unknown)
    else:
        from random import SystemRandom

        from ottla.kernel.ids import random_uuid, uuid_text

        print(uuid_text(random_uuid(SystemRandom())))
    return 0


def _info(words: Words) -> int:
    from ottla.host.disk import HostDisk
    from ottla.log.checkpoint import META_PROPERTIES, read_properties

    disk = HostDisk()
    settings = server_settings(load(words["config"]))
    directories: list[str] = []
    problems: list[str] = []
    first: dict[str, str] | None = None
    for path in sorted(settings.directories):
        if not disk.is_directory(path):
            problems.append(f"{path} is not a directory" if disk.exists(path) else f"{path} does not exist")
            continue
        directories.append(path)
        properties = read_properties(disk, f"{path}/{META_PROPERTIES}")
        if properties is None:
            problems.append(f"{path} is not formatted.")
        elif first is None:
            first = properties
        elif first.get("cluster.id") != properties.get("cluster.id"):
            problems.append("Mismatched cluster IDs between storage directories.")
        elif first.get("node.id") != properties.get("node.id"):
            problems.append("Mismatched node IDs between storage directories.")
    _section("Found log directory:" if len(directories) == 1 else "Found log directories:", directories)
    if first is not None:
        shown = ", ".join(f"{name}={first[name]}" for name in sorted(first))
        print(f"Found metadata: {{{shown}}}\n")
    _section("Found problem:" if len(problems) == 1 else "Found problems:", problems)
    return 1 if problems else 0


def _section(title: str, lines: list[str]) -> None:
    if lines:
        print("\n".join([title, *(f"  {line}" for line in lines), ""]))


def _format(words: Words) -> None:
    from random import SystemRandom

    from ottla.broker.metadata.format import format_directories
    from ottla.host.clock import HostClock
    from ottla.host.disk import HostDisk

    settings = server_settings(load(words["config"]))
    lines = format_directories(
        HostDisk(),
        settings,
        words["cluster-id"],
        clock=HostClock(),
        rng=SystemRandom(),
        standalone=words["standalone"],
        ignore_formatted=words["ignore-formatted"],
        release_version=words["release-version"],
        initial_controllers=words["initial-controllers"],
        no_initial_controllers=words["no-initial-controllers"],
        scram=words["add-scram"] or (),
        features=dict(name_and_level(entry) for entry in words["feature"] or ()),
    )
    for line in lines:
        print(line)
