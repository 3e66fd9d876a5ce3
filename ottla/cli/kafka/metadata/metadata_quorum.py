"""kafka-metadata-quorum: the leader and the followers of the metadata log, and their lag."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.cli.kafka.program.argument import CONTROLLER, SERVER, Command, Words, tool
from ottla.cli.kafka.program.option import Option, int32
from ottla.cli.kafka.program.tool import Failed, admin, load

if TYPE_CHECKING:
    from ottla.client import Admin
    from ottla.client.admin.result import QuorumDescription, QuorumReplica

_DRY_RUN = Option("dry-run", "Only show what would change.")
COMMANDS = (
    Command(
        "describe",
        "Describe the metadata quorum.",
        (
            Option("status", "Show a short summary."),
            Option("replication", "Show every replica and its lag."),
            Option("human-readable", "Show times as milliseconds ago."),
        ),
    ),
    Command("add-controller", "Make the controller of --command-config a voter.", (_DRY_RUN,)),
    Command(
        "remove-controller",
        "Remove a controller from the voters.",
        (
            Option("controller-id", "Id of the controller.", "CONTROLLER_ID", int32, short="i", required=True),
            Option(
                "controller-directory-id", "Id of its directory.", "CONTROLLER_DIRECTORY_ID", short="d", required=True
            ),
            _DRY_RUN,
        ),
    ),
)
_TITLES = ("NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status")


def main() -> None:
    """The console script."""
    tool(
        "kafka-metadata-quorum",
        "This tool describes kraft metadata quorum status.",
        _run,
        options=(Option("command-config", "Properties file for the client.", "COMMAND_CONFIG"),),
        either=((SERVER, CONTROLLER),),
        commands=COMMANDS,
    )


def _run(words: Words) -> int:
    properties = load(words["command-config"]) if words["command-config"] else {}
    bootstrap = words["bootstrap-server"] or words["bootstrap-controller"]
    if words.command == "add-controller":
        if not words["command-config"]:
            raise Failed(
                "You must supply the configuration file of the controller you are adding when using add-controller."
            )
        _add(bootstrap, properties, dry_run=words["dry-run"])
        return 0
    if words.command == "remove-controller":
        _remove(bootstrap, properties, words)
        return 0
    status, replication = words["status"], words["replication"]
    if status and replication:
        raise Failed("Only one of --status or --replication should be specified with describe sub-command")
    if not status and not replication:
        raise Failed("One of --status or --replication must be specified with describe sub-command")
    if status and words["human-readable"]:
        raise Failed("The option --human-readable is only supported along with --replication")
    with admin(bootstrap, properties) as client:
        if status:
            _status(client)
        else:
            _replication(client.describe_quorum(), readable=words["human-readable"])
    return 0


def _add(bootstrap: str, properties: dict[str, str], *, dry_run: bool) -> None:
    from ottla.broker.metadata.registration import voter_endpoints
    from ottla.host.config_providers import server_settings
    from ottla.host.disk import HostDisk
    from ottla.kernel.ids import parse_uuid
    from ottla.log.checkpoint import META_PROPERTIES, read_properties

    settings = server_settings(properties)
    if not settings.is_controller:
        raise Failed(
            "process.roles did not contain 'controller' in configuration file. Is this a valid controller "
            "configuration file?"
        )
    directory = settings.metadata_log_dir
    formatted = read_properties(HostDisk(), f"{directory}/{META_PROPERTIES}")
    if formatted is None:
        raise Failed(f"Unable to read meta.properties from {directory}")
    if "directory.id" not in formatted:
        raise Failed(f"No directory id found in {directory}")
    endpoints = voter_endpoints(settings)
    if not dry_run:
        with admin(bootstrap) as client:
            client.add_raft_voter(
                settings.node_id,
                parse_uuid(formatted["directory.id"]),
                {endpoint.name: (endpoint.host, endpoint.port) for endpoint in endpoints},
            )
    where = ", ".join(f"{endpoint.name}://{endpoint.host}:{endpoint.port}" for endpoint in endpoints)
    verb = "DRY RUN of adding" if dry_run else "Added"
    print(f"{verb} controller {settings.node_id} with directory id {formatted['directory.id']} and endpoints: {where}")


def _remove(bootstrap: str, properties: dict[str, str], words: Words) -> None:
    from ottla.kernel.ids import parse_uuid

    controller, directory, dry_run = words["controller-id"], words["controller-directory-id"], words["dry-run"]
    if controller < 0:
        raise Failed(f"Invalid negative --controller-id: {controller}")
    try:
        directory_id = parse_uuid(directory)
    except ValueError as error:
        raise Failed(f"Failed to parse --controller-directory-id: {error}") from error
    if not dry_run:
        with admin(bootstrap, properties) as client:
            client.remove_raft_voter(controller, directory_id)
    verb = "DRY RUN of removing " if dry_run else "Removed "
    print(f"{verb} KRaft controller {controller} with directory id {directory}")


def _status(client: Admin) -> None:
    cluster_id = client.describe_cluster().cluster_id
    quorum = client.describe_quorum()
    leader = _leader(quorum)
    slowest = min(quorum.voters, key=lambda voter: voter.log_end_offset)
    lag_ms = -1
    if slowest is leader:
        lag_ms = 0
    elif leader.last_caught_up_timestamp >= 0 and slowest.last_caught_up_timestamp >= 0:
        lag_ms = leader.last_caught_up_timestamp - slowest.last_caught_up_timestamp
    lines = {
        "ClusterId": cluster_id,
        "LeaderId": quorum.leader_id,
        "LeaderEpoch": quorum.leader_epoch,
        "HighWatermark": quorum.high_watermark,
        "MaxFollowerLag": leader.log_end_offset - slowest.log_end_offset,
        "MaxFollowerLagTimeMs": lag_ms,
        "CurrentVoters": _replicas(quorum, quorum.voters),
        "CurrentObservers": _replicas(quorum, quorum.observers),
    }
    for name, value in lines.items():
        print(f"{name + ':':<24}{value}")


def _leader(quorum: QuorumDescription) -> QuorumReplica:
    leaders = [voter for voter in quorum.voters if voter.id == quorum.leader_id]
    if not leaders:
        raise Failed("the quorum has no leader")
    return leaders[0]


def _replicas(quorum: QuorumDescription, replicas: Iterable[QuorumReplica]) -> str:
    from ottla.kernel.ids import NO_UUID, uuid_text

    shown = []
    for replica in replicas:
        parts = [f'"id": {replica.id}']
        if replica.directory_id != NO_UUID:
            parts.append(f'"directoryId": "{uuid_text(replica.directory_id)}"')
        if endpoints := quorum.endpoints.get(replica.id):
            parts.append(f'"endpoints": [{", ".join(f"{chr(34)}{endpoint}{chr(34)}" for endpoint in endpoints)}]')
        shown.append("{" + ", ".join(parts) + "}")
    return f"[{', '.join(shown)}]"


def _replication(quorum: QuorumDescription, *, readable: bool) -> None:
    leader = _leader(quorum)
    kinds = [(leader, "Leader")]
    kinds += [(voter, "Follower") for voter in quorum.voters if voter is not leader]
    kinds += [(observer, "Observer") for observer in quorum.observers]
    table(_TITLES, [_row(leader, replica, kind, readable=readable) for replica, kind in kinds])


def _row(leader: QuorumReplica, replica: QuorumReplica, kind: str, *, readable: bool) -> list[str]:
    from ottla.kernel.ids import uuid_text

    def at(timestamp_ms: int) -> str:
        if timestamp_ms < 0 or not readable:
            return str(timestamp_ms)
        return f"{max(0, time.time_ns() // 1_000_000 - timestamp_ms)} ms ago"

    return [
        str(replica.id),
        uuid_text(replica.directory_id),
        str(replica.log_end_offset),
        str(leader.log_end_offset - replica.log_end_offset),
        at(replica.last_fetch_timestamp),
        at(replica.last_caught_up_timestamp),
        kind,
    ]


def table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print columns as wide as their cells, with a tab after each."""
    lines = [list(titles), *map(list, rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(lines[0]))]
    for line in lines:
        print("".join(f"{cell:<{width}}\t" for cell, width in zip(line, widths, strict=True)))
