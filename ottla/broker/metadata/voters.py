"""The voters of the quorum, and where each of them is found.

Rules:
- With kraft.version 1 the metadata log says who votes (KIP-853). Before that `controller.quorum.voters` does.
- A controller without voters that has never voted or led joins a quorum that others have begun: it follows them until
  it is added.
"""

from __future__ import annotations

from ottla.broker.metadata.quorum_settings import bootstrap_peers
from ottla.broker.metadata.registration import voter_endpoints
from ottla.raft.checkpoint import VoterEndpoint, VoterNode
from ottla.raft.role import Election, Voter
from ottla.settings.server.settings import ServerSettings


def first_voters(settings: ServerSettings, election: Election) -> tuple[VoterNode, ...]:
    """The voters as far as the log does not name them.

    `election`: what this node has saved. A controller that has voted for itself, or led, without being told of voters
    is a quorum of its own; one that has not joins a quorum that others have begun.
    """
    fixed = settings.controller_quorum_voters
    if fixed:
        listener = settings.controller_listener_names[0]
        return tuple(VoterNode(Voter(each.id), (VoterEndpoint(listener, each.host, each.port),)) for each in fixed)
    voted = election.voted
    own = election.leader_id == settings.node_id or (voted is not None and voted.node_id == settings.node_id)
    if not settings.is_controller or not own:
        return ()
    return (VoterNode(Voter(settings.node_id), voter_endpoints(settings)),)


def asks_others(settings: ServerSettings) -> bool:
    """Does `controller.quorum.bootstrap.servers` name another address than this controller's own?"""
    own = {(each.host, each.port) for each in voter_endpoints(settings)}
    return any((peer.host, peer.port) not in own for peer in bootstrap_peers(settings))
