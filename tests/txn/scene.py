"""Scenes of a transaction coordinator (`tests/play.py`): `python -m tests.txn.scene --rewrite` writes the traces down.

The commands of a file of `tests/txn/scenes`. P is the name of a client; its transactional id is `t`, or `of=ID`:

    level N            of transaction.version; 2 at first
    init P [own] [timeout=MS] [two-phase] [keep] [of=ID] [lost]   a producer id for P; `own`: P names its own
    add P TOPIC-N ... [client=1]      partitions for its transaction, of a client of version 2, or 1
    verify P TOPIC-N   is the partition in its transaction?
    commit P, abort P  [client=1] [lost]   `lost`: P does not get the answer
    markers [ID]       all markers that were asked for are written
    age EPOCH [of=ID]  the producer's epoch is this one, as after many transactions
    no-ids, ids        the controller has no producer ids just now; it has again
    crash [keep=N]     the coordinator loads its log again, of which N records reached the disk
    pass MS            time goes by
    state              every transactional id
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from ottla.coordinator.contract import Append, Loaded, TimePassed
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import TopicPartition
from ottla.kernel.now import Now
from ottla.txn.coordinator import TransactionCoordinator, TransactionSettings
from ottla.txn.event import AddPartitions, VerifyPartitions, WriteMarkers
from ottla.txn.transaction import NO_EPOCH, NO_PRODUCER_ID, NO_TIMEOUT_MS, TITLES, Transaction
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.record.transaction import parse
from tests import play
from tests.play import NothingThere
from tests.txn import test_coordinator

FOLDER = Path(__file__).parent / "scenes"


class _Coordinator(test_coordinator.Scene):
    """A coordinator and its log. Markers are held, and everything is told."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.level = 2
        self.has_ids = True
        super().__init__()
        self.holding = True

    def loaded(self) -> TransactionCoordinator:
        settings = TransactionSettings(transaction_two_phase_commit_enable=True)
        machine = TransactionCoordinator(settings, self._next_id, lambda: self.level)
        for key, value in self.log:
            machine.replay(key, value)
        return machine

    def _next_id(self) -> int | None:
        return next(self.ids) if self.has_ids else None

    def carry_out(self, effects: list[Any]) -> None:
        for effect in effects:
            super().carry_out([effect])
            if isinstance(effect, Append):
                for key, _ in effect.entries:
                    name = parse(key, None)[0].transactional_id
                    known = self.machine.transactions.get(name)
                    self.lines.append(f"  writes {name}: {_words(known)}")
            elif isinstance(effect, WriteMarkers):
                kind = "COMMIT" if effect.committed else "ABORT"
                where = " ".join(f"{topic}-{number}" for topic, number in effect.partitions) or "no partition"
                self.lines.append(
                    f"  asks for {kind} markers in {where}: {effect.producer_id} epoch {effect.producer_epoch}, "
                    f"transaction version {effect.transaction_version}"
                )


def _words(known: Transaction | None) -> str:
    """Such as `Ongoing, 1000 epoch 0, a-0`."""
    if known is None:
        return "nothing"
    parts = [TITLES[known.state], f"{known.producer_id} epoch {known.producer_epoch}"]
    parts += [" ".join(f"{topic}-{number}" for topic, number in known.partitions)] if known.partitions else []
    if known.previous_producer_id not in (NO_PRODUCER_ID, known.producer_id):
        parts.append(f"before {known.previous_producer_id}")
    if known.next_producer_id != NO_PRODUCER_ID:
        parts.append(f"next {known.next_producer_id}")
    if known.next_producer_epoch != NO_EPOCH:
        parts.append(f"its client has epoch {known.next_producer_epoch}")
    if known.timeout_ms == NO_TIMEOUT_MS:
        parts.append("no timeout")
    return ", ".join(parts)


class Scene(play.Scene):
    """A coordinator and its clients."""

    def __init__(self) -> None:
        super().__init__()
        self.coordinator = _Coordinator([])
        #: Name to (transactional id, producer id, epoch).
        self.clients: dict[str, tuple[str, int, int]] = {}

    def run(self, command: str) -> list[str]:
        self.coordinator.lines.clear()
        told = super().run(command)
        return [*self.coordinator.lines, *told]

    def do_level(self, number: str) -> None:
        self.coordinator.level = int(number)

    def do_no_ids(self) -> None:
        self.coordinator.has_ids = False

    def do_ids(self) -> None:
        self.coordinator.has_ids = True

    def do_init(self, client: str, *words: str) -> None:
        given = dict(word.split("=", 1) for word in words if "=" in word)
        name, producer_id, epoch = self.clients.get(client, ("t", -1, -1))
        own = "own" in words
        name = given.get("of", name)
        answer = self.coordinator.ask(
            InitProducerIdRequest(
                transactional_id=name,
                transaction_timeout_ms=int(given.get("timeout", 60_000)),
                producer_id=producer_id if own else -1,
                producer_epoch=epoch if own else -1,
                enable2_pc="two-phase" in words,
                keep_prepared_txn="keep" in words,
            ),
            6,
        )
        if answer.error_code:
            self.lines.append(f"{client} is told {ErrorCode(answer.error_code).name}")
            return
        line = self._told(client, name, answer, words)
        if answer.ongoing_txn_producer_id != NO_PRODUCER_ID:
            line += f", with the open transaction of {answer.ongoing_txn_producer_id} epoch "
            line += str(answer.ongoing_txn_producer_epoch)
        self.lines.append(line)

    def do_add(self, client: str, *words: str) -> None:
        name, producer_id, epoch = self._client(client)
        version = 1 if "client=1" in words else 2
        partitions = tuple(_partition(word) for word in words if "=" not in word)
        code = self.coordinator.ask(AddPartitions(name, producer_id, epoch, partitions, version))
        self.lines.append(f"{client} is told {code.name}")

    def do_verify(self, client: str, partition: str) -> None:
        name, producer_id, epoch = self._client(client)
        asked = VerifyPartitions(name, producer_id, epoch, (_partition(partition),))
        for code in self.coordinator.ask(asked).values():
            self.lines.append(f"{client} is told {code.name}")

    def do_commit(self, client: str, *words: str) -> None:
        self._end(client, words, commit=True)

    def do_abort(self, client: str, *words: str) -> None:
        self._end(client, words, commit=False)

    def _end(self, client: str, words: tuple[str, ...], *, commit: bool) -> None:
        name, producer_id, epoch = self._client(client)
        version = 4 if "client=1" in words else 5
        answer = self.coordinator.ask(
            EndTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=commit),
            version,
        )
        if answer.error_code:
            self.lines.append(f"{client} is told {ErrorCode(answer.error_code).name}")
            return
        self.lines.append(self._told(client, name, answer, words))

    def _told(self, client: str, name: str, answer: Any, words: tuple[str, ...]) -> str:
        """The client goes on as the answer says, if it gets the answer."""
        if "lost" in words:
            return f"{client} would be {answer.producer_id} epoch {answer.producer_epoch}: the answer is lost"
        self.clients[client] = (name, answer.producer_id, answer.producer_epoch)
        return f"{client} is {answer.producer_id} epoch {answer.producer_epoch}"

    def do_markers(self, name: str = "") -> None:
        if not self.coordinator.markers:
            raise NothingThere("no markers are asked for")
        held = self.coordinator.markers
        later = [each for each in held if name and each.transactional_id != name]
        self.coordinator.markers = [each for each in held if each not in later]
        self.coordinator.write_markers()
        self.coordinator.markers += later

    def do_age(self, epoch: str, of: str = "of=t") -> None:
        name = of.partition("=")[2]
        old = replace(self.coordinator.machine.transactions[name], producer_epoch=int(epoch))
        self.coordinator.carry_out([Append([old.record(self.coordinator.level)])])
        for client, (known, producer_id, _) in self.clients.items():
            if known == name and producer_id == old.producer_id:
                self.clients[client] = (known, producer_id, int(epoch))

    def do_crash(self, keep: str = "") -> None:
        coordinator = self.coordinator
        if keep:
            del coordinator.log[int(keep.partition("=")[2]) :]
        coordinator.markers.clear()
        coordinator.machine = coordinator.loaded()
        coordinator.carry_out(coordinator.machine.step(Loaded(), Now(coordinator.now_ms, coordinator.now_ms)))

    def do_pass(self, ms: str) -> None:
        coordinator = self.coordinator
        coordinator.now_ms += int(ms)
        now = Now(coordinator.now_ms, coordinator.now_ms)
        coordinator.carry_out(coordinator.machine.step(TimePassed(), now))

    def do_state(self) -> None:
        for name, known in self.coordinator.machine.transactions.items():
            self.lines.append(f"{name}: {_words(known)}")

    def _client(self, client: str) -> tuple[str, int, int]:
        if client not in self.clients:
            raise NothingThere(f"{client} has no producer id")
        return self.clients[client]


def _partition(word: str) -> TopicPartition:
    topic, _, number = word.rpartition("-")
    return TopicPartition(topic, int(number))


if __name__ == "__main__":
    sys.exit(play.main(FOLDER, Scene))
