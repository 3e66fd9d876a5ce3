"""The voters of the quorum, and where each of them is found.

Rules:
- With kraft.version 1 the metadata log says who votes (KIP-853). Before that `controller.quorum.voters` does, and a
  node without it is a quorum of its own.
- An address of this node is what it listens on now: the log is told when that differs from what it has.
"""

from __future__ import annotations

from ottla.broker.metadata.registration import voter_endpoints
from ottla.raft.checkpoint import Membership, VoterEndpoint, VoterNode
from ottla.raft.role import Voter
from ottla.settings.server.settings import ServerSettings


def known_voters(membership: Membership, settings: ServerSettings) -> tuple[VoterNode, ...]:
    """The voters with their addresses."""
    if membership.kraft_version:
        return membership.voters
    listener = settings.controller_listener_names[0]
    fixed = settings.controller_quorum_voters
    if not fixed:
        if not settings.is_controller:
            return ()
        return (VoterNode(Voter(settings.node_id), voter_endpoints(settings)),)
    return tuple(VoterNode(Voter(each.id), (VoterEndpoint(listener, each.host, each.port),)) for each in fixed)


def with_own_address(membership: Membership, settings: ServerSettings) -> Membership:
    """The same voters, this node where it listens now."""
    endpoints = voter_endpoints(settings)
    nodes = (
        each._replace(endpoints=endpoints) if each.voter.node_id == settings.node_id else each
        for each in membership.voters
    )
    return membership._replace(voters=tuple(nodes))
