"""The quorum's settings, derived from the server's, and the peers to ask for the leader at first."""

from __future__ import annotations

from ottla.broker.metadata.registration import voter_endpoints
from ottla.raft.connections import QuorumPeer
from ottla.raft.quorum import QuorumSettings
from ottla.settings.schema import SettingSource
from ottla.settings.server.settings import ServerSettings

#: Bootstrap servers get ids from here downwards, because their node ids are not known.
_BOOTSTRAP_ID = -2


def quorum_settings_of(settings: ServerSettings, cluster_id: str) -> QuorumSettings:
    """The settings of the quorum's machine."""
    idle_ms = 0
    if settings.source_of("metadata.max.idle.interval.ms") is not SettingSource.DEFAULT:
        # A fetching node learns of commits at once (KIP-1166), so NoOp records are written only when configured.
        idle_ms = settings.metadata_max_idle_interval_ms
    return QuorumSettings(
        snapshot_bytes=settings.metadata_log_max_record_bytes_between_snapshots,
        snapshot_interval_ms=settings.metadata_log_max_snapshot_interval_ms,
        idle_interval_ms=idle_ms,
        cluster_id=cluster_id,
        listener=settings.controller_listener_names[0],
        endpoints=voter_endpoints(settings),
        bootstrap=bootstrap_peers(settings),
        can_vote=settings.is_controller,
        auto_join=settings.controller_quorum_auto_join_enable,
        election_timeout_ms=settings.controller_quorum_election_timeout_ms,
        election_backoff_max_ms=settings.controller_quorum_election_backoff_max_ms,
        fetch_timeout_ms=settings.controller_quorum_fetch_timeout_ms,
        answer_timeout_ms=settings.controller_quorum_request_timeout_ms,
        retry_backoff_ms=settings.controller_quorum_retry_backoff_ms,
        fetch_max_bytes=settings.controller_quorum_fetch_max_bytes,
        fetch_snapshot_max_bytes=settings.controller_quorum_fetch_snapshot_max_bytes,
    )


def bootstrap_peers(settings: ServerSettings) -> tuple[QuorumPeer, ...]:
    """The peers in `controller.quorum.voters`, or in `controller.quorum.bootstrap.servers`."""
    if settings.controller_quorum_voters:
        return tuple(QuorumPeer(voter.id, voter.host, voter.port) for voter in settings.controller_quorum_voters)
    peers = []
    for index, text in enumerate(settings.controller_quorum_bootstrap_servers):
        host, _, port = text.rpartition(":")
        peers.append(QuorumPeer(_BOOTSTRAP_ID - index, host.removeprefix("[").removesuffix("]"), int(port)))
    return tuple(peers)
