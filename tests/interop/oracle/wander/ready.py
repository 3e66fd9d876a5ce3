"""Members of a share group brought to where histories of it begin: they have the partition, and its first record."""

import time

from tests.interop.oracle.side import CLOSED, message
from tests.interop.oracle.wander.history import Values
from tests.interop.oracle.wander.place import SILENCE, Place

_PATIENCE_S = 20.0


def share_member(place: Place, group: str, member: str, topic: str) -> None:
    """Beat until the partition is assigned, then fetch until there is a session; the first record is accepted.

    Keeps `<member>.epoch` and `<member>.session`.
    """
    if "t0.id" not in place.known:
        return  # a history made too short
    deadline = time.monotonic() + _PATIENCE_S
    epoch, assigned = 0, False
    while not assigned and time.monotonic() < deadline:
        names = [topic] if epoch == 0 else None
        request = message(
            "ShareGroupHeartbeat", group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=names
        )
        reply = place.ask(request, 1)
        if reply in (SILENCE, CLOSED) or reply.error_code:
            time.sleep(0.01)
            continue
        epoch = reply.member_epoch
        assigned = reply.assignment is not None and bool(reply.assignment.topic_partitions)
    session, said = 0, False
    first = not place.known.get("accepted")
    while time.monotonic() < deadline and not said:
        part: Values = {"partition_index": 0}
        asked = {"topic_id": place.known["t0.id"], "partitions": [part]}
        reply = place.ask(
            message(
                "ShareFetch",
                group_id=group,
                member_id=member,
                share_session_epoch=session,
                max_wait_ms=100,
                min_bytes=1,
                max_bytes=1 << 20,
                max_records=500,
                batch_size=500,
                topics=[asked],
            ),
            1,
        )
        if reply in (SILENCE, CLOSED):
            return
        session += 1
        said = not first or any(one.acquired_records for each in reply.responses for one in each.partitions)
    if first:
        accepted = {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}
        part = {"partition_index": 0, "acknowledgement_batches": [accepted]}
        topics = [{"topic_id": place.known["t0.id"], "partitions": [part]}]
        place.ask(
            message("ShareAcknowledge", group_id=group, member_id=member, share_session_epoch=session, topics=topics), 1
        )
        session += 1
        place.known["accepted"] = True
    place.known |= {f"{member}.epoch": epoch, f"{member}.session": session}
