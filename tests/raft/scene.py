"""Scenes of the quorum (`tests/play.py`): `python -m tests.raft.scene --rewrite` writes the traces down.

The commands of a file of `tests/raft/scenes`:

    nodes 1 2 3 [spare 4] [broker 10] [kraft=0] [setting=number ...]   the first command
    start N ...            crash N [keep=OFFSET]      wipe N
    pass MS                time goes by, for all nodes at once
    live MS                time goes by in steps, and all messages and syncs happen; told are roles, and answers to you
    deliver A->B [COUNT]   messages that travel from A to B, the oldest first
    round                  every message that is under way now
    settle                 messages and syncs, until there are none
    drop A->B              fail A->B [ERROR]: A learns that B does not answer
    refuse A->B            A learns that no process listens at B
    sync N                 submit N VALUE ...         resign N        raise N [LEVEL]
    leave N                who asked N last from outside is gone
    snapshot N             of everything that is committed
    ask N WHAT key=value   a request from outside: vote prevote begin end fetch fetch-snapshot add remove update
    reply A->B WHAT key=value   B's answer to the newest request of A that is under way; `late`: to the oldest
    describe N             the voters and observers as N, the leader, knows them
    state                  the role, log and voters of every node
"""

from __future__ import annotations

import random
import sys
from dataclasses import fields, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from ottla.kernel.error import ErrorCode
from ottla.raft.effect import Effect
from ottla.raft.event import Event, RequestDropped, RequestReceived, ResignRequested, Submitted, VersionRaised
from ottla.raft.quorum import QuorumSettings
from tests import play
from tests.play import NothingThere
from tests.raft.cluster import Cluster, Message, Node
from tests.raft.node_disk import LISTENER
from tests.raft.outside import answer_of, request_of
from tests.raft.trace import effect_words, membership_words, role_words, value_words, voter_words

FOLDER = Path(__file__).parent / "scenes"
#: Enough for everything that a scene lets happen by itself.
_ROUNDS_MAX = 60
_STEP_MS = 100
_SERVERS_MAX = 10


class ScriptedRng(random.Random):
    """Chance as a scene has it: node n asks for votes n * 100 ms after the election timeout, and the first server."""

    def __init__(self, node_id: int) -> None:
        super().__init__(node_id)
        self._node_id = node_id

    def randrange(self, stop: int, *_: Any) -> int:  # type: ignore[override]
        """An election's time is the only chance among many."""
        return min(stop - 1, self._node_id * 100) if stop > _SERVERS_MAX else self._node_id % stop


class Scene(play.Scene):
    """A cluster whose messages travel when a command says so."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster([], [])
        self._roles: dict[int, str] = {}
        self._asked = 0

    def check(self) -> None:
        """What a quorum never does."""
        self.cluster.check()

    # ---- commands

    def do_nodes(self, *words: str) -> None:
        ids: dict[str, list[int]] = {"voter": [], "spare": [], "broker": []}
        kind, given = "voter", {}
        for word in words:
            if "=" in word:
                name, _, value = word.partition("=")
                given[name] = int(value)
            elif word in ids:
                kind = word
            else:
                ids[kind].append(int(word))
        kraft_version = given.pop("kraft", 1)
        unknown = given.keys() - {each.name for each in fields(QuorumSettings)}
        assert not unknown, f"no such settings: {unknown}"
        settings = replace(QuorumSettings(), **given)  # type: ignore[arg-type]
        self.cluster = Cluster(
            ids["voter"],
            [*ids["spare"], *ids["broker"]],
            kraft_version=kraft_version,
            settings=settings,
            asks_itself=False,
            rng_of=lambda node_id, life: ScriptedRng(node_id),
        )
        self.cluster.on_step = self._saw
        self.cluster.on_answer = lambda node, ticket, response: None

    def do_start(self, *ids: str) -> None:
        for node in self._nodes(ids):
            node.start()

    def do_crash(self, node_id: str, keep: str = "") -> None:
        (node,) = self._nodes([node_id])
        node.crash(int(keep.partition("=")[2]) if keep else None)
        self._roles.pop(node.node_id, None)

    def do_full(self, node_id: str, until: str = "") -> None:
        """From now on, or until now, the node's disk has no room."""
        (node,) = self._nodes([node_id])
        node.disk.is_full = not until

    def do_wipe(self, node_id: str) -> None:
        (node,) = self._nodes([node_id])
        node.wipe()

    def do_pass(self, ms: str) -> None:
        self.cluster.pass_time(int(ms))

    def do_live(self, ms: str) -> None:
        for _ in range(int(ms) // _STEP_MS):
            self.cluster.pass_time(_STEP_MS)
            self.do_settle()
        self.lines = [line for line in self.lines if not line.startswith(" ") or " answers you: " in line]

    def do_deliver(self, way: str, count: str = "1") -> None:
        for _ in range(int(count)):
            self.cluster.deliver(self._take(way))

    def do_round(self) -> None:
        messages, self.cluster.messages = self.cluster.messages, []
        for message in messages:
            self.cluster.deliver(message)

    def do_settle(self) -> None:
        for _ in range(_ROUNDS_MAX):
            for node in list(self.cluster.up()):
                if node.wants_sync:
                    node.sync()
            if not self.cluster.messages:
                return
            self.do_round()
        raise NothingThere("it does not settle")

    def do_drop(self, way: str) -> None:
        self._take(way)

    def do_fail(self, way: str, error: str = "BROKER_NOT_AVAILABLE") -> None:
        self.cluster.fail(self._take(way, newest=True), ErrorCode[error])

    def do_refuse(self, way: str) -> None:
        self.cluster.fail(self._take(way, newest=True), is_refused=True)

    def do_sync(self, node_id: str) -> None:
        (node,) = self._nodes([node_id])
        node.sync()

    def do_submit(self, node_id: str, *values: str) -> None:
        (node,) = self._nodes([node_id])
        node.step(Submitted(list(values)))

    def do_resign(self, node_id: str) -> None:
        (node,) = self._nodes([node_id])
        assert node.quorum is not None
        node.step(ResignRequested(node.quorum.epoch))

    def do_raise(self, node_id: str, level: str = "1") -> None:
        (node,) = self._nodes([node_id])
        assert node.quorum is not None
        refusal = node.quorum.version_refusal(int(level))
        if refusal:
            self.lines.append(f"refused: {refusal}")
        else:
            node.step(VersionRaised(int(level)))

    def do_leave(self, node_id: str) -> None:
        (node,) = self._nodes([node_id])
        node.step(RequestDropped(f"outside {self._asked}"))

    def do_snapshot(self, node_id: str) -> None:
        (node,) = self._nodes([node_id])
        node.write_snapshot()

    def do_ask(self, node_id: str, kind: str, *words: str) -> None:
        (node,) = self._nodes([node_id])
        self._asked += 1
        given = dict(word.split("=", 1) for word in words)
        version = int(given.pop("version", "18" if kind == "fetch" else "2"))
        node.step(RequestReceived(f"outside {self._asked}", LISTENER, request_of(kind, given), version))

    def do_late(self, way: str, kind: str, *words: str) -> None:
        self._reply(self._take(way), kind, words)

    def do_reply(self, way: str, kind: str, *words: str) -> None:
        self._reply(self._take(way, newest=True), kind, words)

    def _reply(self, message: Message, kind: str, words: tuple[str, ...]) -> None:
        response = answer_of(kind, dict(word.split("=", 1) for word in words))
        self.cluster.deliver(message._replace(response=response))

    def do_describe(self, node_id: str) -> None:
        (node,) = self._nodes([node_id])
        assert node.quorum is not None
        voters, observers = node.quorum.describe(self.cluster.now_ms)
        for what, found in (("voter", voters), ("observer", observers)):
            for each in found:
                ages = f"fetched {each.fetched_ms_ago} ms ago, caught up {each.caught_up_ms_ago} ms ago"
                self.lines.append(f"{what} {voter_words(each.key)} ends at {each.end_offset}, {ages}")

    def do_state(self) -> None:
        for node in self.cluster.nodes.values():
            quorum = node.quorum
            if quorum is None:
                self.lines.append(f"{node.node_id} is down")
                continue
            high_watermark = quorum.leader_high_watermark if quorum.leads else quorum.high_watermark
            committed = "nothing committed" if high_watermark < 0 else f"committed {high_watermark}"
            self.lines.append(
                f"{node.node_id} {role_words(quorum.role)}, {committed}, log {_log_words(node)}, "
                f"voters {membership_words(quorum.membership)}"
            )

    # ---- what is told

    def _saw(self, node: Node, event: Event, effects: list[Effect]) -> None:
        assert node.quorum is not None
        role = role_words(node.quorum.role)
        if self._roles.get(node.node_id) != role:
            self._roles[node.node_id] = role
            self.lines.append(f"{node.node_id} {role}")
        self.lines += [f"  {node.node_id} {words}" for words in map(effect_words, effects) if words]

    def _nodes(self, ids: Any) -> list[Node]:
        return [self.cluster.nodes[int(node_id)] for node_id in ids]

    def _take(self, way: str, *, newest: bool = False) -> Message:
        source, target = map(int, way.split("->"))
        messages = self.cluster.messages
        for message in reversed(messages) if newest else list(messages):
            if newest and message.response is not None:
                continue
            ends = (message.source, message.target)
            if (ends if message.response is None else ends[::-1]) == (source, target):
                messages[:] = [each for each in messages if each is not message]
                return message
        raise NothingThere(f"nothing is under way {way}")


def _log_words(node: Node) -> str:
    log = node.log
    epochs = groupby(log.entries.items(), key=lambda each: each[1].epoch)
    parts = [f"{epoch}: {' '.join(value_words(entry.value) for _, entry in found)}" for epoch, found in epochs]
    start = f"from {log.start_offset} " if log.start_offset else ""
    return f"{start}[{'; '.join(parts)}] to {log.end_offset}"


if __name__ == "__main__":
    sys.exit(play.main(FOLDER, Scene))
