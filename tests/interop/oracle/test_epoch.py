"""Where leader epochs end, asked of Apache's broker and of ours in the same history of restarts (KIP-101, KIP-320)."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.interop import server as servers
from tests.interop.oracle.side import Side
from tests.interop.oracle.test_record import batch, data
from tests.interop.oracle.wander.catalogue import SETTINGS
from tests.interop.server import Server

pytestmark = pytest.mark.interop

#: By topic the lives of the server in which it is written to, and the one in which records are deleted, up to where.
#: That is the last one: a server that is killed keeps a deletion only if its next checkpoint was written.
TOPICS: dict[str, tuple[set[int], dict[int, int]]] = {
    "empty": (set(), {}),
    "once": ({0}, {}),
    "always": ({0, 1, 2, 3}, {}),
    "later": ({1, 3}, {}),
    "cut": ({0, 1, 2}, {3: 7}),
    "emptied": ({0, 2}, {3: -1}),
}
LIVES = 4
OFFSETS = (0, 5, 7, 10, 15, 99)


class Lives:
    """The leader epochs of one topic, one a life of its server. Their numbers are the server's own affair."""

    def __init__(self) -> None:
        self.epochs: list[int] = []

    def asked(self) -> dict[str, int]:
        """The epochs that are asked about, by their names in the transcript."""
        beyond = {"the next": self.epochs[-1] + 1, "one beyond": self.epochs[-1] + 2}
        return {"none": -1} | {f"life {life}": epoch for life, epoch in enumerate(self.epochs)} | beyond

    def name(self, epoch: int) -> str:
        return next((name for name, known in self.asked().items() if known == epoch), f"another: {epoch}")


def play(server: Server) -> list[tuple[str, Any]]:
    """Four lives of a server, each with a leader epoch of its own; all that may be asked is asked in between."""
    transcript: list[tuple[str, Any]] = []
    lives = {name: Lives() for name in TOPICS}
    for life in range(LIVES):
        server.start()
        side = Side(server)
        for name in TOPICS:
            if life == 0:
                side.create(name)
            else:
                side.await_topic(name, 1)
            metadata = side.ask("Metadata", 12, note=False, topics=[{"name": name}], allow_auto_topic_creation=False)
            lives[name].epochs.append(metadata.topics[0].partitions[0].leader_epoch)
            ask_all(side, name, lives[name])
        for name, (written, deleted) in TOPICS.items():
            if life in written:
                side.ask("Produce", 9, note=False, acks=-1, timeout_ms=10_000, topic_data=data(name, batch(5)))
            if life in deleted:
                asked = [{"name": name, "partitions": [{"partition_index": 0, "offset": deleted[life]}]}]
                side.ask("DeleteRecords", 2, topics=asked, timeout_ms=5000)
            ask_all(side, name, lives[name])
        side.close()
        server.kill()
        transcript += [(f"in life {life}: {what}", said) for what, said in side.transcript]
    for known in lives.values():
        assert known.epochs == sorted(set(known.epochs)), "each life has its own epoch"
    return transcript


def ask_all(side: Side, topic: str, lives: Lives) -> None:
    """What OffsetForLeaderEpoch, ListOffsets and Fetch say of every epoch, and of some that never were."""
    epochs = lives.asked()
    for (under, current), (what, epoch) in product(epochs.items(), epochs.items()):
        partition = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
        topics = [{"topic": topic, "partitions": [partition]}]
        reply = side.ask("OffsetForLeaderEpoch", 4, note=False, replica_id=-1, topics=topics)
        (one,) = reply.topics[0].partitions
        side.note(f"{topic}, {what} under {under}", (one.error_code, lives.name(one.leader_epoch), one.end_offset))
    for under, (what, last), offset in product(("none", f"life {len(lives.epochs) - 1}"), epochs.items(), OFFSETS):
        wanted = {
            "partition": 0,
            "current_leader_epoch": epochs[under],
            "last_fetched_epoch": last,
            "fetch_offset": offset,
            "partition_max_bytes": 1,
        }
        given: dict[str, Any] = {"max_wait_ms": 0, "session_epoch": -1, "max_bytes": 1}
        reply = side.ask("Fetch", 12, note=False, topics=[{"topic": topic, "partitions": [wanted]}], **given)
        (found,) = reply.responses[0].partitions
        diverging = (lives.name(found.diverging_epoch.epoch), found.diverging_epoch.end_offset)
        said = (found.error_code, found.high_watermark, found.log_start_offset, diverging, len(found.records or b""))
        side.note(f"{topic}, from {offset} after {what} under {under}", said)
    for timestamp in (-2, -1):
        asked = [{"partition_index": 0, "current_leader_epoch": lives.epochs[-1], "timestamp": timestamp}]
        reply = side.ask("ListOffsets", 7, note=False, replica_id=-1, topics=[{"name": topic, "partitions": asked}])
        (listed,) = reply.topics[0].partitions
        side.note(f"{topic}, listed {timestamp}", (listed.error_code, listed.offset, lives.name(listed.leader_epoch)))


def test_epochs_end_where_apache_says(tmp_path: Path) -> None:
    told = {}
    for name in ("apache", "ottla"):
        # A broker that was killed is back when the session of its last life has ended.
        server = Server(servers.kind(name), tmp_path / name, SETTINGS | {"broker.session.timeout.ms": "3000"})
        try:
            told[name] = play(server)
        finally:
            server.kill()
    assert len(told["apache"]) > 1000
    found = [
        f"{what}: Apache {theirs}, we {ours}"
        for (what, theirs), (_, ours) in zip(told["apache"], told["ottla"], strict=True)
        if theirs != ours
    ]
    assert not found, f"{len(found)} differences\n" + "\n".join(found[:50])
