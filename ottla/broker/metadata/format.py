"""Formats log directories, as `kafka-storage format` does: ids, bootstrap records, and the voters of a new quorum.

Rules:
- `meta.properties` is written last: a directory with it is formatted; one without it may be formatted again.
- A directory of another cluster or node is never changed.
- Apache Kafka starts on directories formatted here, and vice versa.

KIPs: 584 features, 785 `--standalone` and its kin, 853 voters, 858 directory ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.broker.metadata.file import PARTITION, make_durable_directory, write_batches
from ottla.broker.metadata.registration import voter_endpoints
from ottla.kernel.error import OttlaError
from ottla.kernel.ids import Uuid, random_uuid, uuid_text
from ottla.kernel.lazy import LazyModule
from ottla.kernel.ports import Clock, Disk, Rng
from ottla.log.checkpoint import META_PROPERTIES, read_properties, write_properties
from ottla.metadata.feature import (
    KRAFT_VERSION,
    METADATA_VERSIONS,
    SCRAM_FROM,
    feature_records,
    new_cluster_levels,
    release_level,
    supported,
)
from ottla.metadata.image import METADATA_VERSION
from ottla.raft.checkpoint import (
    BOOTSTRAP_FILE,
    BOOTSTRAP_ID,
    PART_SUFFIX,
    Membership,
    VoterNode,
    checkpoint_name,
    encode_checkpoint,
)
from ottla.raft.role import Voter
from ottla.settings.server.settings import ServerSettings
from ottla.wire.record.metadata import pack

if TYPE_CHECKING:
    from ottla.broker.metadata import format_argument
    from ottla.wire.record.security import UserScramCredentialRecord
else:
    format_argument = LazyModule("ottla.broker.metadata.format_argument")

_KRAFT_VERSION_LATEST = 1


def format_directories(
    disk: Disk,
    settings: ServerSettings,
    cluster_id: str,
    *,
    clock: Clock,
    rng: Rng,
    standalone: bool = False,
    initial_controllers: str | None = None,
    no_initial_controllers: bool = False,
    ignore_formatted: bool = False,
    release_version: str | None = None,
    features: Mapping[str, int] | None = None,
    scram: Sequence[str] = (),
) -> list[str]:
    """Format the log directories that are not formatted yet, and return one line of output per directory.

    `no_initial_controllers` is for a controller that will join an existing quorum.

    Raises OttlaError with a message for the user. Nothing has been written then, unless the disk itself failed.
    """
    if not cluster_id:
        raise OttlaError("the cluster needs an id: give one with -t (ottla storage random-uuid makes one)")
    founding = _founds(settings, standalone, initial_controllers)
    levels, kraft_version = _levels(
        settings, release_version, dict(features or {}), founding=founding, joining=no_initial_controllers
    )
    voters: tuple[VoterNode, ...] = ()
    if initial_controllers is not None:
        voters = format_argument.initial_voters(initial_controllers, settings.controller_listener_names[0])
    credentials = _credentials(levels, scram, rng)
    formatted, empty = _sort(disk, settings, cluster_id)
    if formatted and not ignore_formatted:
        raise OttlaError(
            f"Log directory {formatted[0]} is already formatted. Use --ignore-formatted to ignore this directory and "
            "format the others."
        )
    if not empty:
        return ["All of the log directories are already formatted."]
    now_ms = clock.now_ms()
    release = METADATA_VERSIONS[levels[METADATA_VERSION]].text
    bootstrap = [pack(record) for record in (*feature_records(levels), *credentials)]
    lines = []
    for path in empty:
        directory_id, kind = random_uuid(rng), "data directory"
        _write_bootstrap(disk, path, bootstrap, now_ms)
        if path == _clean(settings.metadata_log_dir):
            kind = "dynamic metadata directory" if founding else "metadata directory"
            directory_id = _named(voters, settings.node_id) or directory_id
            me = Voter(settings.node_id, directory_id)
            if standalone:
                voters = (VoterNode(me, voter_endpoints(settings)[:1]),)
            if any(node.voter == me for node in voters):
                kind = "dynamic metadata voter directory"
            if founding:
                _write_voters(disk, path, Membership(kraft_version, voters), now_ms)
        _write_properties(disk, path, settings.node_id, directory_id, cluster_id)
        lines.append(f"Formatting {kind} {path} with {METADATA_VERSION} {release}.")
    return lines


def format_if_empty(
    disk: Disk, settings: ServerSettings, *, clock: Clock | None = None, rng: Rng | None = None
) -> bool:
    """Format the node's directories as a new single-node cluster unless one is formatted; True if it did."""
    if any(disk.exists(f"{path}/{META_PROPERTIES}") for path in settings.directories):
        return False
    if clock is None or rng is None:
        from random import SystemRandom

        from ottla.host.clock import HostClock

        clock, rng = clock or HostClock(), rng or SystemRandom()
    standalone = not settings.controller_quorum_voters
    format_directories(disk, settings, uuid_text(random_uuid(rng)), clock=clock, rng=rng, standalone=standalone)
    return True


def _credentials(levels: Mapping[str, int], scram: Sequence[str], rng: Rng) -> list[UserScramCredentialRecord]:
    if scram and levels[METADATA_VERSION] < SCRAM_FROM:
        least = METADATA_VERSIONS[SCRAM_FROM].text
        raise OttlaError(f"SCRAM is only supported in metadata.version {least} or later.")
    return format_argument.scram_records(scram, rng) if scram else []


def _founds(settings: ServerSettings, standalone: bool, initial_controllers: str | None) -> bool:
    """Whether the node begins a new quorum."""
    if standalone and not settings.is_controller:
        raise OttlaError("You can only use --standalone on a controller.")
    return standalone or initial_controllers is not None


def _levels(
    settings: ServerSettings, release_version: str | None, features: dict[str, int], *, founding: bool, joining: bool
) -> tuple[dict[str, int], int]:
    """(feature levels, kraft.version)."""
    if not settings.process_roles:
        raise OttlaError("the file has no process.roles: write process.roles=broker,controller for a node that is both")
    static = bool(settings.controller_quorum_voters)
    if static and founding:
        raise OttlaError(
            "You cannot specify controller.quorum.voters and format the node with --initial-controllers or "
            "--standalone. If you want to use dynamic quorum, please remove controller.quorum.voters and specify "
            "controller.quorum.bootstrap.servers instead."
        )
    if settings.is_controller and not (static or founding or joining):
        raise OttlaError(
            "Because controller.quorum.voters is not set on this controller, you must specify one of the following: "
            "--standalone, --initial-controllers, or --no-initial-controllers."
        )
    unstable = settings.unstable_feature_versions_enable
    lowest, highest = supported(unstable=unstable)[METADATA_VERSION]
    metadata_version = highest
    if METADATA_VERSION in features:
        if release_version is not None:
            raise OttlaError(f"Use --release-version instead of --feature {METADATA_VERSION}=X to avoid ambiguity.")
        metadata_version = features[METADATA_VERSION]
        if not lowest <= metadata_version <= highest:
            why = f"No {METADATA_VERSION} with feature level {metadata_version}: it takes {lowest} to {highest}"
            raise OttlaError(why)
    elif release_version is not None:
        metadata_version = release_level(release_version, unstable=unstable)
    kraft_version = features.pop(KRAFT_VERSION, 0 if static else _KRAFT_VERSION_LATEST)
    if not 0 <= kraft_version <= _KRAFT_VERSION_LATEST:
        raise OttlaError(f"No feature level {kraft_version} of {KRAFT_VERSION}: it takes 0 to {_KRAFT_VERSION_LATEST}")
    if not kraft_version and not static:
        raise OttlaError(
            f"Cannot set {KRAFT_VERSION} to 0 if controller.quorum.voters is empty and one of the flags --standalone, "
            "--initial-controllers, or --no-initial-controllers is used. For dynamic controllers support, try removing "
            f"the --feature flag for {KRAFT_VERSION}."
        )
    if kraft_version and static:
        raise OttlaError(
            f"Cannot set {KRAFT_VERSION} to {kraft_version} unless controller.quorum.voters is empty and one of the "
            "flags --standalone, --initial-controllers, or --no-initial-controllers is used. For dynamic controllers "
            "support, try using one of --standalone, --initial-controllers, or --no-initial-controllers and removing "
            "controller.quorum.voters."
        )
    return new_cluster_levels(metadata_version, features), kraft_version


def _sort(disk: Disk, settings: ServerSettings, cluster_id: str) -> tuple[list[str], list[str]]:
    """(formatted directories, unformatted directories). OttlaError if one belongs to another cluster or node."""
    formatted, empty = [], []
    for path in settings.directories:
        properties = read_properties(disk, f"{path}/{META_PROPERTIES}") if disk.is_directory(path) else None
        if properties is None:
            empty.append(path)
            continue
        file = f"{path}/{META_PROPERTIES}"
        found_cluster_id = properties.get("cluster.id", "")
        if found_cluster_id != cluster_id:
            raise OttlaError(f"Invalid cluster.id in: {file}. Expected {cluster_id}, but read {found_cluster_id}")
        node_id = properties.get("node.id", properties.get("broker.id", ""))
        if node_id != str(settings.node_id):
            raise OttlaError(
                f"Stored node id {node_id} doesn't match node id {settings.node_id} in {file}. If you moved your data, "
                "make sure your configured node id matches."
            )
        formatted.append(path)
    return formatted, empty


def _write_bootstrap(disk: Disk, path: str, records: list[bytes], now_ms: int) -> None:
    make_durable_directory(disk, path)
    batches = encode_checkpoint(records, Membership(), epoch=0, last_contained_log_timestamp=0, now_ms=now_ms)
    target = f"{path}/{BOOTSTRAP_FILE}"
    write_batches(disk, target, f"{target}.tmp", batches)


def _write_properties(disk: Disk, path: str, node_id: int, directory_id: Uuid, cluster_id: str) -> None:
    properties = {
        "node.id": str(node_id),
        "directory.id": uuid_text(directory_id),
        "version": "1",
        "cluster.id": cluster_id,
    }
    write_properties(disk, f"{path}/{META_PROPERTIES}", properties)


def _named(voters: tuple[VoterNode, ...], node_id: int) -> Uuid | None:
    """The directory id given for a voter, if any."""
    return next((node.voter.directory_id for node in voters if node.voter.node_id == node_id), None)


def _write_voters(disk: Disk, path: str, membership: Membership, now_ms: int) -> None:
    batches = encode_checkpoint((), membership, epoch=0, last_contained_log_timestamp=now_ms, now_ms=now_ms)
    make_durable_directory(disk, f"{path}/{PARTITION}")
    target = f"{path}/{PARTITION}/{checkpoint_name(BOOTSTRAP_ID)}"
    write_batches(disk, target, target.removesuffix(".checkpoint") + PART_SUFFIX, batches)


def _clean(path: str) -> str:
    return path.rstrip("/") or "/"
