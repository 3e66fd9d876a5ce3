"""The initial voters of the quorum and their addresses.

Rules:
- With kraft.version 1 the voters are in the metadata log (KIP-853). Before, they are in `controller.quorum.voters`.
- A controller that knows no voters and has never voted or led joins an existing quorum: it follows the other nodes
  until it is added.
"""

from __future__ import annotations

from ottla.broker.metadata.quorum_settings import bootstrap_peers
from ottla.broker.metadata.registration import voter_endpoints
from ottla.raft.checkpoint import VoterEndpoint, VoterNode
from ottla.raft.role import Election, Voter
from ottla.settings.server.settings import ServerSettings


def first_voters(settings: ServerSettings, election: Election) -> tuple[VoterNode, ...]:
    """The voters that apply as long as the log does not name any.

    `election` is the saved state of this node. A controller that voted for itself or led without knowing other voters
    is a quorum of its own; any other joins an existing quorum.
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
    """Whether `controller.quorum.bootstrap.servers` names an address other than this controller's own."""
    own = {(each.host, each.port) for each in voter_endpoints(settings)}
    # Port 0 is a listener of this node, which has another port by now.
    return any(peer.port and (peer.host, peer.port) not in own for peer in bootstrap_peers(settings))
