"""The format of `quorum-state`: one line of JSON with the newest election.

Version 1 belongs to kraft.version 1 and has the directory that was voted for. Version 0 has the voters, which come from
the settings.
"""

from __future__ import annotations

import json

from ottla.kernel.error import OttlaError
from ottla.kernel.ids import NO_UUID, parse_uuid, uuid_text
from ottla.raft.role import EPOCH_MAX, NO_NODE, Election, Voter

FILE = "quorum-state"


def encode_state(election: Election, kraft_version: int, voters: tuple[Voter, ...]) -> str:
    """Encode an election byte for byte as Apache Kafka does."""
    voted = election.voted
    fields: dict[str, object] = {
        "leaderId": election.leader_id,
        "leaderEpoch": election.epoch,
        "votedId": NO_NODE if voted is None else voted.node_id,
    }
    if kraft_version > 0:
        fields["votedDirectoryId"] = uuid_text(NO_UUID if voted is None else voted.directory_id)
        fields["data_version"] = 1
    else:
        fields = {"clusterId": "", **fields, "appliedOffset": 0}
        fields["currentVoters"] = [{"voterId": voter.node_id} for voter in voters]
        fields["data_version"] = 0
    return json.dumps(fields, separators=(",", ":"))


def decode_state(text: str, path: str) -> Election:
    """Decode an election. Raise OttlaError for a damaged file: guessing an epoch could make us vote twice in it."""
    try:
        fields = json.loads(text)
        if fields["data_version"] not in (0, 1):
            raise ValueError(f"data_version {fields['data_version']}")
        voted_id = int(fields["votedId"])
        directory_id = parse_uuid(fields.get("votedDirectoryId", uuid_text(NO_UUID)))
        voted = None if voted_id == NO_NODE else Voter(voted_id, directory_id)
        epoch = int(fields["leaderEpoch"])
        if not 0 <= epoch < EPOCH_MAX:
            raise ValueError(f"leaderEpoch {epoch}")
        return Election(epoch, int(fields["leaderId"]), voted)
    except (ValueError, KeyError, TypeError) as error:
        raise OttlaError(f"{path} is damaged ({error}); restore it from a backup") from None
